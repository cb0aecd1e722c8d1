//! Records as Apache Parquet: docs/export.md has the columns.

use std::sync::Arc;

use parquet::basic::Compression;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

use super::super::record::unreadable;
use super::file::NewFile;
use super::row::Row;
use crate::failure::Failure;

/// A file that is being written, one row group at a time.
pub(super) struct ParquetExport {
    writer: SerializedFileWriter<NewFile>,
    /// What the next row group will have.
    rows: Vec<Row>,
    bytes: usize,
}

/// A column: its name, its type in Parquet's own notation, and its values.
struct Column {
    name: &'static str,
    values: Values,
}

/// Where a row's value is. Absent values are null.
enum Values {
    Text(fn(&Row) -> Option<&str>),
    Unsigned(fn(&Row) -> Option<u64>),
    /// Nanoseconds since the Unix epoch, UTC.
    Time(fn(&Row) -> Option<i64>),
    Small(fn(&Row) -> Option<u32>),
    Flag(fn(&Row) -> Option<bool>),
    Texts(fn(&Row) -> &[String]),
}

// === impl ParquetExport ===

impl ParquetExport {
    pub(super) fn begin(file: NewFile) -> Result<Self, Failure> {
        let columns: String = COLUMNS.iter().map(Column::declaration).collect();
        let schema = parse_message_type(&format!("message credence_audit {{\n{columns}}}")).map_err(failed)?;
        let mut properties = WriterProperties::builder()
            .set_created_by(concat!("credence ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_compression(Compression::SNAPPY)
            .set_dictionary_enabled(true);
        // No two values are the same.
        for name in [
            "index",
            "sequence",
            "request_id",
            "trace_id",
            "arguments_hash",
            "time",
            "decision_ns",
        ] {
            properties = properties.set_column_dictionary_enabled(ColumnPath::from(name), false);
        }
        let writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties.build())).map_err(failed)?;
        Ok(Self {
            writer,
            rows: Vec::new(),
            bytes: 0,
        })
    }

    /// Takes a record as the control plane shows it.
    pub(super) fn write(&mut self, record: &str) -> Result<(), Failure> {
        self.rows
            .push(serde_json::from_str(record).map_err(|error| unreadable(&error))?);
        self.bytes += record.len();
        if self.rows.len() >= GROUP_ROWS || self.bytes >= GROUP_BYTES {
            self.write_group().map_err(failed)?;
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<(), Failure> {
        if !self.rows.is_empty() {
            self.write_group().map_err(failed)?;
        }
        self.writer.into_inner().map_err(failed)?.finish()
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let rows = std::mem::take(&mut self.rows);
        self.bytes = 0;
        let mut group = self.writer.next_row_group()?;
        let mut columns = COLUMNS.iter();
        while let Some(mut writer) = group.next_column()? {
            if let Some(column) = columns.next() {
                column.write(&rows, writer.untyped())?;
            }
            writer.close()?;
        }
        group.close()?;
        Ok(())
    }
}

// === impl Column ===

impl Column {
    const fn new(name: &'static str, values: Values) -> Self {
        Self { name, values }
    }

    /// In the notation of Parquet's own schemas.
    fn declaration(&self) -> String {
        let name = self.name;
        match self.values {
            Values::Text(_) => format!("OPTIONAL BYTE_ARRAY {name} (STRING);\n"),
            Values::Unsigned(_) => format!("OPTIONAL INT64 {name} (INTEGER(64,false));\n"),
            Values::Time(_) => format!("OPTIONAL INT64 {name} (TIMESTAMP(NANOS,true));\n"),
            Values::Small(_) => format!("OPTIONAL INT32 {name};\n"),
            Values::Flag(_) => format!("OPTIONAL BOOLEAN {name};\n"),
            Values::Texts(_) => {
                format!(
                    "REQUIRED GROUP {name} (LIST) {{ REPEATED GROUP list {{ REQUIRED BYTE_ARRAY element (STRING); }} }}\n"
                )
            }
        }
    }

    fn write(&self, rows: &[Row], writer: &mut ColumnWriter<'_>) -> Result<(), ParquetError> {
        match (&self.values, writer) {
            (Values::Text(of), ColumnWriter::ByteArrayColumnWriter(writer)) => {
                let (values, levels) = optional(rows, |row| of(row).map(ByteArray::from));
                writer.write_batch(&values, Some(&levels), None)?;
            }
            (Values::Unsigned(of), ColumnWriter::Int64ColumnWriter(writer)) => {
                // The column's type says that its bits are an unsigned number.
                let (values, levels) = optional(rows, |row| of(row).map(u64::cast_signed));
                writer.write_batch(&values, Some(&levels), None)?;
            }
            (Values::Time(of), ColumnWriter::Int64ColumnWriter(writer)) => {
                let (values, levels) = optional(rows, of);
                writer.write_batch(&values, Some(&levels), None)?;
            }
            (Values::Small(of), ColumnWriter::Int32ColumnWriter(writer)) => {
                let (values, levels) = optional(rows, |row| of(row).map(u32::cast_signed));
                writer.write_batch(&values, Some(&levels), None)?;
            }
            (Values::Flag(of), ColumnWriter::BoolColumnWriter(writer)) => {
                let (values, levels) = optional(rows, of);
                writer.write_batch(&values, Some(&levels), None)?;
            }
            (Values::Texts(of), ColumnWriter::ByteArrayColumnWriter(writer)) => {
                let (values, definition, repetition) = lists(rows, of);
                writer.write_batch(&values, Some(&definition), Some(&repetition))?;
            }
            (_, _) => {
                return Err(ParquetError::General(format!(
                    "the column {} has another type than was declared",
                    self.name
                )));
            }
        }
        Ok(())
    }
}

/// The values that are there, and of each row whether its is.
fn optional<T>(rows: &[Row], of: impl Fn(&Row) -> Option<T>) -> (Vec<T>, Vec<i16>) {
    let mut values = Vec::with_capacity(rows.len());
    let levels = rows.iter().map(|row| {
        let value = of(row);
        let level = i16::from(value.is_some());
        values.extend(value);
        level
    });
    let levels = levels.collect();
    (values, levels)
}

/// The elements of all lists; of each whether it is there, and whether it belongs to the list of the one before.
fn lists(rows: &[Row], of: impl Fn(&Row) -> &[String]) -> (Vec<ByteArray>, Vec<i16>, Vec<i16>) {
    let (mut values, mut definition, mut repetition) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let elements = of(row);
        if elements.is_empty() {
            definition.push(0);
            repetition.push(0);
        }
        for (place, element) in elements.iter().enumerate() {
            values.push(ByteArray::from(element.as_str()));
            definition.push(1);
            repetition.push(i16::from(place > 0));
        }
    }
    (values, definition, repetition)
}

fn failed(error: ParquetError) -> Failure {
    Failure::operation(format!(
        "the Parquet file can not be written: {error}; see to the disk and run the same command again"
    ))
}

/// In the order of the file.
const COLUMNS: &[Column] = &[
    Column::new("index", Values::Unsigned(|row| Some(row.index))),
    Column::new("source", Values::Text(|row| row.source.as_deref())),
    Column::new("sequence", Values::Unsigned(|row| row.sequence)),
    Column::new("received", Values::Time(|row| row.received)),
    Column::new("kind", Values::Text(|row| Some(&row.kind))),
    Column::new("time", Values::Time(|row| row.time)),
    Column::new("decision", Values::Text(|row| row.decision.as_deref())),
    Column::new("reason", Values::Text(|row| row.reason.as_deref())),
    Column::new("mode", Values::Text(|row| row.mode.as_deref())),
    Column::new("rule", Values::Text(|row| row.rule.as_deref())),
    Column::new("tool", Values::Text(|row| row.tool.as_deref())),
    Column::new(
        "principal_issuer",
        Values::Text(|row| row.principal.as_ref()?.issuer.as_deref()),
    ),
    Column::new(
        "principal_subject",
        Values::Text(|row| row.principal.as_ref()?.subject.as_deref()),
    ),
    Column::new("agent", Values::Text(|row| row.agent.as_deref())),
    Column::new("proof", Values::Text(|row| row.proof.as_deref())),
    Column::new("delegation_ids", Values::Texts(|row| &row.delegation_ids)),
    Column::new("chain_digest", Values::Text(|row| row.chain_digest.as_deref())),
    Column::new("expires_at", Values::Time(|row| row.expires_at)),
    Column::new("arguments_hash", Values::Text(|row| row.arguments_hash.as_deref())),
    Column::new("arguments", Values::Text(|row| row.arguments.as_deref())),
    Column::new("method", Values::Text(|row| row.method.as_deref())),
    Column::new("authority", Values::Text(|row| row.authority.as_deref())),
    Column::new("path_template", Values::Text(|row| row.path_template.as_deref())),
    Column::new("response_status", Values::Small(|row| row.response_status)),
    Column::new("request_id", Values::Text(|row| row.request_id.as_deref())),
    Column::new("trace_id", Values::Text(|row| row.trace_id.as_deref())),
    Column::new("cache", Values::Text(|row| row.cache.as_deref())),
    Column::new("decision_ns", Values::Unsigned(|row| row.decision_ns)),
    Column::new("stale_ms", Values::Unsigned(|row| row.stale_ms)),
    Column::new("count", Values::Unsigned(|row| row.count)),
    Column::new("shed", Values::Unsigned(|row| row.shed)),
    Column::new("shed_counts", Values::Unsigned(|row| row.shed_counts)),
    Column::new("shed_chains", Values::Unsigned(|row| row.shed_chains)),
    Column::new("first_time", Values::Time(|row| row.first_time)),
    Column::new("last_time", Values::Time(|row| row.last_time)),
    Column::new("change", Values::Text(|row| row.change.as_deref())),
    Column::new("last_sequence", Values::Unsigned(|row| row.last_sequence)),
    Column::new("node", Values::Text(|row| row.node.as_deref())),
    Column::new("plugin", Values::Text(|row| row.plugin.as_deref())),
    Column::new("peer", Values::Text(|row| row.peer.as_deref())),
    Column::new("anchors_digest", Values::Text(|row| row.anchors_digest.as_deref())),
    Column::new("chain", Values::Text(|row| row.chain.as_deref())),
    Column::new("note", Values::Text(|row| row.note.as_deref())),
    Column::new("key", Values::Unsigned(|row| row.key)),
    Column::new("by", Values::Text(|row| row.by.as_deref())),
    Column::new("first", Values::Unsigned(|row| row.first)),
    Column::new("tree_size", Values::Unsigned(|row| row.tree_size)),
    Column::new("root", Values::Text(|row| row.root.as_deref())),
    Column::new("reported_by", Values::Text(|row| row.reported_by.as_deref())),
    Column::new("step", Values::Text(|row| row.step.as_deref())),
    Column::new("other_anchors", Values::Flag(|row| row.other_anchors)),
];

/// Rows of one group, and bytes of their JSON: what is held in memory.
const GROUP_ROWS: usize = 50_000;
const GROUP_BYTES: usize = 32 << 20;
