//! Tools with constraints on their arguments: what a client asks for, what policy allows, what a person grants.

use credence_delegation::json::{Json, Object};
use credence_delegation::{Capabilities, Denial, InadmissibleNumber, Members, Value};

/// Tools, each with constraints on its arguments (draft section 3.3).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Tools {
    written: Members,
    capabilities: Capabilities,
}

/// Why tools cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ToolsError {
    #[error("tools must be an object of objects: the constraints on the arguments of each tool")]
    Shape,
    #[error(transparent)]
    Number(#[from] InadmissibleNumber),
    #[error("{0}")]
    Constraint(Denial),
}

impl Tools {
    /// Reads a `tools` object.
    pub(crate) fn parse(json: &Json<'_>) -> Result<Self, ToolsError> {
        Self::read(json.as_object().ok_or(ToolsError::Shape)?)
    }

    pub(crate) fn read(tools: &Object<'_>) -> Result<Self, ToolsError> {
        let capabilities = Capabilities::of_tools(tools).map_err(ToolsError::Constraint)?;
        let written = Members::from_json(tools)?;
        Ok(Self { written, capabilities })
    }

    /// These tools, each with its constraints.
    pub(crate) fn of(tools: impl IntoIterator<Item = (String, Value)>) -> Result<Self, ToolsError> {
        let text = Value::object(tools).canonical();
        Self::parse(&Json::parse(text.as_bytes()).map_err(|_| ToolsError::Shape)?)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.written == Members::new()
    }

    /// The tools, each with its constraints as written.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.written.iter()
    }

    /// This tool alone.
    pub(crate) fn only(&self, tool: &str) -> Option<Self> {
        let constraints = self.written.argument(tool)?.clone();
        Self::of([(tool.to_owned(), constraints)]).ok()
    }

    /// Whether everything that `others` grant is granted here. `false` if that cannot be shown.
    pub(crate) fn cover(&self, others: &Self) -> bool {
        self.capabilities.check_attenuation(&others.capabilities).is_ok()
    }

    #[cfg(test)]
    pub(crate) fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// The `tools` object.
    pub(crate) fn to_value(&self) -> Value {
        Value::Object(self.written.clone())
    }
}
