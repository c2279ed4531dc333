//! The screen of `parhelia config show`.

use parhelia_core::config::Setting;

use super::table::{Table, cell};

fn value(setting: &Setting) -> String {
    match &setting.value {
        serde_json::Value::Null => "-".to_owned(),
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Array(tables) => format!("{} tables", tables.len()),
        other => other.to_string(),
    }
}

pub(crate) fn list(settings: &[Setting], origin: bool, wide: bool) -> String {
    let mut columns = vec![("KEY", 0), ("VALUE", 0)];
    if origin || wide {
        columns.push(("ORIGIN", 0));
    }
    if wide {
        columns.extend([("ALLOWED", 0), ("ABOUT", 0)]);
    }
    let mut table = Table::new(&columns);
    for one in settings {
        let mut row = vec![cell(&one.key), cell(value(one))];
        if origin || wide {
            row.push(cell(one.origin.to_string()));
        }
        if wide {
            row.extend([cell(&one.allowed), cell(&one.about)]);
        }
        table.row(row);
    }
    table.render()
}
