//! Records as Apache Parquet. docs/reference/evidence.md documents the columns.

use std::sync::Arc;

use credence_delegation::json::Json;
use credence_ledger::fields::{FIELDS, Field, FieldKind};
use parquet::basic::Compression;
use parquet::column::writer::{ColumnWriter, ColumnWriterImpl};
use parquet::data_type::{ByteArray, ByteArrayType, DataType};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use prost_types::Timestamp;
use tempfile::NamedTempFile;

use crate::control_plane::unreadable;
use crate::failure::Failure;

/// A file that is being written, one row group at a time.
pub(super) struct ParquetExport {
    writer: SerializedFileWriter<NamedTempFile>,
    /// The records of the next row group, as JSON.
    records: Vec<String>,
    bytes: usize,
}

// === impl ParquetExport ===

impl ParquetExport {
    pub(super) fn begin(file: NamedTempFile) -> Result<Self, Failure> {
        let columns: String = FIELDS.iter().map(declaration).collect();
        let schema = parse_message_type(&format!("message credence_audit {{\n{columns}}}")).map_err(failed)?;
        // The writer stops using the dictionary of a column whose values rarely repeat.
        let properties = WriterProperties::builder()
            .set_created_by(concat!("credence ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_compression(Compression::SNAPPY);
        let writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties.build())).map_err(failed)?;
        Ok(Self {
            writer,
            records: Vec::new(),
            bytes: 0,
        })
    }

    /// Adds a record, in the JSON of the control plane.
    pub(super) fn write(&mut self, record: &str) -> Result<(), Failure> {
        self.records.push(record.to_owned());
        self.bytes += record.len();
        if self.records.len() >= GROUP_ROWS || self.bytes >= GROUP_BYTES {
            self.write_group()?;
        }
        Ok(())
    }

    /// Writes the footer. The file is not published yet.
    pub(super) fn finish(mut self) -> Result<NamedTempFile, Failure> {
        if !self.records.is_empty() {
            self.write_group()?;
        }
        self.writer.into_inner().map_err(failed)
    }

    fn write_group(&mut self) -> Result<(), Failure> {
        let records = std::mem::take(&mut self.records);
        self.bytes = 0;
        let rows = records
            .iter()
            .map(|record| Json::parse(record.as_bytes()).map_err(unreadable))
            .collect::<Result<Vec<_>, _>>()?;
        let mut group = self.writer.next_row_group().map_err(failed)?;
        let mut fields = FIELDS.iter();
        while let Some(mut writer) = group.next_column().map_err(failed)? {
            if let Some(field) = fields.next() {
                write_column(field, &rows, writer.untyped())?;
            }
            writer.close().map_err(failed)?;
        }
        group.close().map_err(failed)?;
        Ok(())
    }
}

/// A field's column, in the notation of Parquet's own schemas.
fn declaration(field: &Field) -> String {
    let name = field.name;
    match field.kind {
        FieldKind::Text => format!("OPTIONAL BYTE_ARRAY {name} (STRING);\n"),
        FieldKind::Number => format!("OPTIONAL INT64 {name} (INTEGER(64,false));\n"),
        FieldKind::Time => format!("OPTIONAL INT64 {name} (TIMESTAMP(NANOS,true));\n"),
        FieldKind::SmallNumber => format!("OPTIONAL INT32 {name};\n"),
        FieldKind::Flag => format!("OPTIONAL BOOLEAN {name};\n"),
        FieldKind::Texts => {
            format!(
                "REQUIRED GROUP {name} (LIST) {{ REPEATED GROUP list {{ REQUIRED BYTE_ARRAY element (STRING); }} }}\n"
            )
        }
    }
}

fn write_column(field: &Field, rows: &[Json<'_>], writer: &mut ColumnWriter<'_>) -> Result<(), Failure> {
    match (field.kind, writer) {
        (FieldKind::Text, ColumnWriter::ByteArrayColumnWriter(writer)) => {
            write_optional(writer, field, rows, |json| json.as_str().map(ByteArray::from))
        }
        (FieldKind::Number, ColumnWriter::Int64ColumnWriter(writer)) => {
            // The logical type of the column says that its bits are an unsigned number.
            write_optional(writer, field, rows, |json| unsigned(json).map(u64::cast_signed))
        }
        (FieldKind::Time, ColumnWriter::Int64ColumnWriter(writer)) => write_optional(writer, field, rows, nanoseconds),
        (FieldKind::SmallNumber, ColumnWriter::Int32ColumnWriter(writer)) => {
            write_optional(writer, field, rows, |json| json.as_integer()?.try_into().ok())
        }
        (FieldKind::Flag, ColumnWriter::BoolColumnWriter(writer)) => {
            write_optional(writer, field, rows, |json| json.as_bool())
        }
        (FieldKind::Texts, ColumnWriter::ByteArrayColumnWriter(writer)) => write_lists(writer, field, rows),
        (_, _) => Err(failed(ParquetError::General(format!(
            "the column {} has another type than the schema declares",
            field.name
        )))),
    }
}

/// Writes the values that are present, and a definition level for each row.
fn write_optional<T: DataType>(
    writer: &mut ColumnWriterImpl<'_, T>,
    field: &Field,
    rows: &[Json<'_>],
    read: impl Fn(&Json<'_>) -> Option<T::T>,
) -> Result<(), Failure> {
    let (mut values, mut levels) = (Vec::with_capacity(rows.len()), Vec::with_capacity(rows.len()));
    for row in rows {
        let value = value(field, row);
        levels.push(i16::from(value.is_some()));
        if let Some(json) = value {
            values.push(read(json).ok_or_else(|| wrong_type(field))?);
        }
    }
    writer
        .write_batch(&values, Some(&levels), None)
        .map(|_| ())
        .map_err(failed)
}

/// Writes the elements of all lists, with definition and repetition levels.
fn write_lists(
    writer: &mut ColumnWriterImpl<'_, ByteArrayType>,
    field: &Field,
    rows: &[Json<'_>],
) -> Result<(), Failure> {
    let (mut values, mut definition, mut repetition) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let elements = match value(field, row) {
            Some(json) => json.as_array().ok_or_else(|| wrong_type(field))?,
            None => &[],
        };
        if elements.is_empty() {
            definition.push(0);
            repetition.push(0);
        }
        for (place, element) in elements.iter().enumerate() {
            values.push(element.as_str().map(ByteArray::from).ok_or_else(|| wrong_type(field))?);
            definition.push(1);
            repetition.push(i16::from(place > 0));
        }
    }
    let written = writer.write_batch(&values, Some(&definition), Some(&repetition));
    written.map(|_| ()).map_err(failed)
}

/// A record's value of a field; `None` if it is absent or null.
fn value<'a, 'j>(field: &Field, record: &'a Json<'j>) -> Option<&'a Json<'j>> {
    let members = record.as_object()?;
    let value = match field.name.strip_prefix("principal_") {
        Some(part) => members.at(&["principal", part]),
        None => members.member(field.name),
    };
    value.filter(|json| **json != Json::Null)
}

fn unsigned(json: &Json<'_>) -> Option<u64> {
    match json {
        Json::Number(number) => number.text().parse().ok(),
        _ => None,
    }
}

/// RFC 3339, in nanoseconds since the Unix epoch. Clamped to the range that these can count.
fn nanoseconds(json: &Json<'_>) -> Option<i64> {
    let time: Timestamp = json.as_str()?.parse().ok()?;
    let seconds = time.seconds.saturating_mul(1_000_000_000);
    Some(seconds.saturating_add(time.nanos.into()))
}

fn wrong_type(field: &Field) -> Failure {
    unreadable(format_args!("{} does not have the expected type", field.name))
}

fn failed(error: ParquetError) -> Failure {
    Failure::operation(format!(
        "the Parquet file cannot be written: {error}; check the disk and run the same command again"
    ))
}

/// Rows of a group, and bytes of their JSON. Both bound the memory.
const GROUP_ROWS: usize = 50_000;
const GROUP_BYTES: usize = 32 << 20;
