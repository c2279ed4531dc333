//! The JSON Schema of a cascade file, for editors. What it cannot say (needs, templates, …) `check` says.

/// JSON Schema 2020-12.
pub const SCHEMA: &str = include_str!("schema.json");

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test the panic is the message")]
mod tests {
    use super::SCHEMA;
    use crate::cascade::shape;
    use serde_json::Value;

    /// What the reader knows and what the schema knows is the same.
    #[test]
    fn it_has_the_keys_of_the_reader() {
        let schema: Value = serde_json::from_str(SCHEMA).unwrap();
        for (pointer, keys) in [
            ("/cascade", shape::CASCADE),
            ("/input", shape::INPUT),
            ("/workers", shape::WORKERS),
            ("/resources", shape::RESOURCES),
            ("/phase", shape::PHASE),
            ("/task", shape::TASK),
            ("/agent", shape::AGENT),
            ("/retry/anyOf/1", shape::RETRY),
            ("/await", shape::AWAIT),
            ("/question", shape::QUESTION),
            ("/sensor", shape::SENSOR),
            ("/sensor/properties/command", shape::SENSOR_COMMAND),
            ("/sensor/properties/time", shape::SENSOR_TIME),
            ("/sub_cascade/anyOf/1", shape::SUB_CASCADE),
        ] {
            let properties = schema.pointer(&format!("/$defs{pointer}/properties")).unwrap();
            let mut there: Vec<&str> = properties.as_object().unwrap().keys().map(String::as_str).collect();
            let mut known = keys.to_vec();
            there.sort_unstable();
            known.sort_unstable();
            assert_eq!(there, known, "{pointer}");
        }
    }
}
