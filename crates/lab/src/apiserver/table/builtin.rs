//! Columns of the built-in kinds, from data recorded from a real server.

use crate::apiserver::registry::Column;
use serde_json::{Value, json};

/// Columns by group and plural.
pub(in crate::apiserver) struct Columns(Value);

/// Reads the recorded columns.
pub(in crate::apiserver) fn builtin_columns() -> Columns {
    let text = include_str!("../data/columns.json");
    Columns(serde_json::from_str(text).expect("the recorded columns are JSON"))
}

impl Columns {
    /// Of this kind; those without columns of their own have a name and an age.
    pub(in crate::apiserver) fn of(&self, group: &str, plural: &str) -> Vec<Column> {
        let Some(list) = self.0["tables"][format!("{group}/{plural}")].as_array() else {
            let age = Column { definition: self.described(&age("string")), path: String::new() };
            return vec![self.name(), age];
        };
        list.iter()
            .map(|column| Column { definition: self.described(column), path: String::new() })
            .collect()
    }

    /// The first column of every table.
    pub(super) fn name(&self) -> Column {
        let name = json!({
            "name": "Name", "type": "string", "format": "name", "description": "@name",
            "priority": 0,
        });
        Column { definition: self.described(&name), path: String::new() }
    }

    /// The last column of a table of custom resources without columns of their own.
    pub(super) fn custom_age(&self) -> Column {
        let path = ".metadata.creationTimestamp".to_owned();
        Column { definition: self.described(&age("date")), path }
    }

    /// Two descriptions are long and everywhere; the data has them once.
    fn described(&self, column: &Value) -> Value {
        let mut column = column.clone();
        let text = &self.0[column["description"].as_str().unwrap_or_default()];
        if text.is_string() {
            column["description"] = text.clone();
        }
        column
    }
}

fn age(of_type: &str) -> Value {
    json!({
        "name": "Age", "type": of_type, "format": "", "description": "@age", "priority": 0,
    })
}
