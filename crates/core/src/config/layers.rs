//! Where each value comes from: the default, the file, the environment, a flag; the later wins. A mistake is told with
//! the key, the value, what is allowed, and the line or the variable to correct.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use toml::{Table, Value};

use super::Config;
use super::check::first_misfit;
use super::keys::{self, Key, Kind};

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigError {
    #[error("{0}")]
    Syntax(String),
    #[error("{key} = {value} is out of range: it must be {allowed}{}", at(origin))]
    Range { key: String, value: String, allowed: String, origin: Origin },
    #[error("{variable} is not a setting{}", meant(like))]
    UnknownVariable { variable: String, like: Option<String> },
}

fn at(origin: &Origin) -> String {
    match origin {
        Origin::Default => String::new(),
        other => format!(" ({other})"),
    }
}

fn meant(like: &Option<String>) -> String {
    like.as_ref().map(|like| format!("; did you mean {like}?")).unwrap_or_default()
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "snake_case")]
pub enum Origin {
    Default,
    File { path: String, line: usize },
    Environment { variable: String },
    Flag { flag: String },
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { path, line } => write!(f, "line {line} of {path}"),
            Origin::Environment { variable } => f.write_str(variable),
            Origin::Flag { flag } => f.write_str(flag),
        }
    }
}

/// What the edge has found; the later wins.
#[derive(Debug, Clone, Default)]
pub struct Layers {
    /// How the file is called in messages, and its text.
    pub file: Option<(String, String)>,
    /// Every variable that begins with `PARHELIA_`.
    pub environment: Vec<(String, String)>,
    /// A flag, the key that it sets, and the value.
    pub flags: Vec<(String, &'static str, String)>,
}

/// One setting as `config show` tells it. A secret's value is hidden.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Setting {
    pub key: String,
    pub value: serde_json::Value,
    #[serde(flatten)]
    pub origin: Origin,
    pub allowed: String,
    pub about: String,
}

#[derive(Debug, Clone)]
pub struct Loaded {
    pub config: Config,
    /// Of every key that is not at its default.
    pub origins: BTreeMap<String, Origin>,
}

/// Variables that are no settings: they say how a command finds its server, or are set for what runs in a sandbox.
const NOT_SETTINGS: &[&str] = &[
    "PARHELIA_HOME",
    "PARHELIA_URL",
    "PARHELIA_TOKEN",
    "PARHELIA_TOKEN_FILE",
    "PARHELIA_CONFIG",
    "PARHELIA_LOG",
    "PARHELIA_CONTAINER_ID",
    "PARHELIA_INSTANCE_ID",
    "PARHELIA_TASK_ID",
    "PARHELIA_SESSION_ID",
    "PARHELIA_JOB_ID",
    "PARHELIA_SUPERVISES",
];

impl Config {
    /// The text of a file alone.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let file = Some(("the configuration".to_owned(), text.to_owned()));
        Self::load(Layers { file, ..Layers::default() }).map(|loaded| loaded.config)
    }

    pub fn load(layers: Layers) -> Result<Loaded, ConfigError> {
        let mut origins = BTreeMap::new();
        let mut table = Table::new();
        if let Some((path, text)) = &layers.file {
            // Once as it is, for errors that show the line; then as a table, for what comes on top of it.
            let _: Config = toml::from_str(text).map_err(|e| syntax(path, &e.to_string()))?;
            table = toml::from_str(text).map_err(|e| syntax(path, &e.to_string()))?;
            lines(text, path, &mut origins);
        }
        for (variable, text) in layers.environment {
            // An empty variable is how a shell says "not set".
            if text.trim().is_empty() || NOT_SETTINGS.contains(&variable.as_str()) {
                continue;
            }
            let Some(key) = keys::ALL.iter().find(|key| key.variable() == variable) else {
                // Only what has the shape of a setting: other programs may have variables of this name too.
                match sections().any(|section| variable.starts_with(&section)) {
                    true => return Err(ConfigError::UnknownVariable { like: nearest(&variable), variable }),
                    false => continue,
                }
            };
            put(&mut table, &mut origins, key, &text, Origin::Environment { variable })?;
        }
        for (flag, name, text) in layers.flags {
            if let Some(key) = keys::find(name) {
                put(&mut table, &mut origins, key, &text, Origin::Flag { flag })?;
            }
        }
        let config = Config::deserialize(table).map_err(|e| ConfigError::Syntax(e.to_string()))?;
        check(&config, &origins)?;
        Ok(Loaded { config, origins })
    }
}

impl Loaded {
    /// Every setting with its value and its origin, in the order of the list.
    pub fn settings(&self) -> Vec<Setting> {
        let whole = serde_json::to_value(&self.config).unwrap_or_default();
        let value_of = |name: &str| {
            name.split('.').try_fold(&whole, |value, part| value.get(part)).cloned().unwrap_or_default()
        };
        let mut all: Vec<Setting> = keys::ALL
            .iter()
            .map(|key| {
                let origin = self.origins.get(key.name).cloned().unwrap_or(Origin::Default);
                let value = match (key.kind, &origin) {
                    (Kind::Secret, Origin::Default) => serde_json::Value::Null,
                    (Kind::Secret, _) => "(hidden)".into(),
                    _ => value_of(key.name),
                };
                let (allowed, about) = (key.allowed(), key.about.to_owned());
                Setting { key: key.name.to_owned(), value, origin, allowed, about }
            })
            .collect();
        // Tables that stand more than once.
        let many = |name: &str, value: &serde_json::Value| value.is_array() || name == "engines";
        for (name, value) in whole.as_object().into_iter().flatten().filter(|(name, value)| many(name, value))
        {
            let mut of_it = self.origins.iter().filter(|(key, _)| key.split('.').next() == Some(name));
            let origin = of_it.next().map_or(Origin::Default, |(_, origin)| origin.clone());
            let written = if value.is_array() { format!("[[{name}]]") } else { format!("[{name}.NAME]") };
            let about = format!("the {written} tables of the file");
            let allowed = "tables".to_owned();
            all.push(Setting { key: name.clone(), value: value.clone(), origin, allowed, about });
        }
        all
    }
}

/// `PARHELIA_SERVER_` and so on.
fn sections() -> impl Iterator<Item = String> {
    let names = keys::ALL.iter().filter_map(|key| key.name.split_once('.'));
    names.map(|(section, _)| format!("PARHELIA_{}_", section.to_uppercase()))
}

fn nearest(variable: &str) -> Option<String> {
    let shared = |name: &str| name.bytes().zip(variable.bytes()).take_while(|(a, b)| a == b).count();
    keys::ALL.iter().map(Key::variable).max_by_key(|name| shared(name))
}

fn words(text: &str) -> Value {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    Value::Array(words.map(|word| Value::String(word.to_owned())).collect())
}

fn put(
    table: &mut Table,
    origins: &mut BTreeMap<String, Origin>,
    key: &Key,
    text: &str,
    origin: Origin,
) -> Result<(), ConfigError> {
    let text = text.trim();
    let value = match key.kind {
        Kind::Int { .. } => text.parse().ok().map(Value::Integer),
        Kind::Real { .. } => text.parse().ok().map(Value::Float),
        Kind::Bool => text.parse().ok().map(Value::Boolean),
        Kind::Switch => text.parse().map(Value::Boolean).ok().or(Some(Value::String(text.to_owned()))),
        Kind::List => Some(words(text)),
        Kind::Text | Kind::Secret => Some(Value::String(text.to_owned())),
    };
    let refused = || ConfigError::Range {
        key: key.name.to_owned(),
        value: if key.kind == Kind::Secret { "(hidden)".to_owned() } else { format!("'{text}'") },
        allowed: key.allowed(),
        origin: origin.clone(),
    };
    let value = value.ok_or_else(refused)?;
    match key.name.split_once('.') {
        None => drop(table.insert(key.name.to_owned(), value)),
        Some((section, name)) => {
            let section = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
            section.as_table_mut().ok_or_else(refused)?.insert(name.to_owned(), value);
        }
    }
    // By itself, so that a value that does not fit is blamed on this variable or flag.
    Config::deserialize(table.clone()).map_err(|_| refused())?;
    origins.insert(key.name.to_owned(), origin);
    Ok(())
}

fn check(config: &Config, origins: &BTreeMap<String, Origin>) -> Result<(), ConfigError> {
    let whole = serde_json::to_value(config).unwrap_or_default();
    let origin = |key: &str| origins.get(key).cloned().unwrap_or(Origin::Default);
    for key in keys::ALL {
        let value = key.name.split('.').try_fold(&whole, |value, part| value.get(part));
        let fits = match (key.kind, value) {
            (Kind::Int { low, high }, Some(value)) => {
                value.as_i64().is_some_and(|n| (low..=high).contains(&n))
            }
            // Not a number is shown as null.
            (Kind::Real { above, most }, Some(value)) => {
                value.as_f64().is_some_and(|n| n > above && n <= most)
            }
            _ => true,
        };
        if !fits {
            let value = value.map(ToString::to_string).unwrap_or_default();
            let (allowed, key) = (key.allowed(), key.name.to_owned());
            return Err(ConfigError::Range { origin: origin(&key), key, value, allowed });
        }
    }
    match first_misfit(config) {
        None => Ok(()),
        Some(bad) => Err(ConfigError::Range {
            origin: origin(bad.key),
            key: bad.key.to_owned(),
            value: bad.value,
            allowed: bad.allowed,
        }),
    }
}

/// The line of every key of the file.
fn lines(text: &str, path: &str, origins: &mut BTreeMap<String, Origin>) {
    let Ok(whole) = toml::de::DeTable::parse(text) else { return };
    let place = |span: std::ops::Range<usize>| Origin::File {
        path: path.to_owned(),
        line: 1 + text.as_bytes()[..span.start.min(text.len())].iter().filter(|b| **b == b'\n').count(),
    };
    for (name, value) in whole.get_ref() {
        match value.get_ref().as_table() {
            Some(section) => {
                for key in section.keys() {
                    origins.insert(format!("{}.{}", name.get_ref(), key.get_ref()), place(key.span()));
                }
            }
            None => drop(origins.insert(name.get_ref().to_string(), place(name.span()))),
        }
    }
}

/// As much of a mistake as a person reads.
const LINE_CHARS: usize = 200;
const MESSAGE_LINES: usize = 12;

/// A mistake is shown with its line, and that line may hold a password: in an address, or in what was left of one.
fn syntax(path: &str, message: &str) -> ConfigError {
    let hidden = |line: &str| {
        let secret = ["://", "@", "url", "password"].iter().filter_map(|sign| line.find(sign)).min();
        let (number, quoted) = line.split_once(" | ").unwrap_or(("", ""));
        match secret {
            None => line.to_owned(),
            Some(_) if !quoted.is_empty() && number.trim().bytes().all(|b| b.is_ascii_digit()) => {
                let key =
                    quoted.split('=').next().filter(|key| quoted.len() > key.len() && !key.contains(':'));
                format!("{number} | {}(hidden)", key.map_or_else(String::new, |key| format!("{key}= ")))
            }
            // The name of a key is no secret; an address is, from where it begins.
            Some(_) => match ["://", "@"].iter().filter_map(|sign| line.find(sign)).min() {
                Some(at) => format!("{}(hidden)", &line[..at]),
                None => line.to_owned(),
            },
        }
    };
    let short = |line: String| line.chars().take(LINE_CHARS).collect::<String>();
    let message: Vec<_> = message.lines().map(|line| short(hidden(line))).take(MESSAGE_LINES).collect();
    ConfigError::Syntax(format!("{path}: {}", message.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers(file: &str, environment: &[(&str, &str)]) -> Layers {
        Layers {
            file: Some(("parhelia.toml".to_owned(), file.to_owned())),
            environment: environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            flags: Vec::new(),
        }
    }

    #[test]
    fn the_later_layer_wins_and_each_value_says_where_it_is_from() {
        let mut all = layers(
            "[server]\nmax_batch = 7\nmax_connections = 5\n\n[docker]\nenabled = false\n",
            &[
                ("PARHELIA_SERVER_MAX_BATCH", "8"),
                ("PARHELIA_DOCKER_ENABLED", "auto"),
                ("PARHELIA_SERVER_LISTEN", ""),
                ("PARHELIA_HOME", "/elsewhere"),
                ("PARHELIA_DATABASE_URL", "postgres://ann:s3cret@h/d"),
            ],
        );
        all.flags.push(("--listen".to_owned(), "server.listen", "127.0.0.1:1".to_owned()));
        let loaded = Config::load(all).unwrap();
        assert_eq!((loaded.config.server.max_batch, loaded.config.server.max_connections), (8, 5));
        let shown: Vec<String> = loaded
            .settings()
            .iter()
            .filter(|s| s.origin != Origin::Default)
            .map(|s| format!("{} = {} [{}]", s.key, s.value, s.origin))
            .collect();
        assert_eq!(
            shown,
            [
                "server.listen = \"127.0.0.1:1\" [--listen]",
                "server.database_url = \"(hidden)\" [PARHELIA_DATABASE_URL]",
                "server.max_batch = 8 [PARHELIA_SERVER_MAX_BATCH]",
                "server.max_connections = 5 [line 3 of parhelia.toml]",
                "docker.enabled = \"auto\" [PARHELIA_DOCKER_ENABLED]",
            ]
        );
    }

    #[test]
    fn a_mistake_is_told_with_its_place() {
        let told = |file: &str, environment: &[(&str, &str)]| {
            Config::load(layers(file, environment)).unwrap_err().to_string()
        };
        assert_eq!(
            told("[reconciler]\n\npoll_interval_seconds = 0\n", &[]),
            "reconciler.poll_interval_seconds = 0 is out of range: it must be from 1 to 3600 (line 3 of parhelia.toml)"
        );
        assert_eq!(
            told("", &[("PARHELIA_SERVER_MAX_BATCH", "many")]),
            "server.max_batch = 'many' is out of range: it must be from 1 to 100000 (PARHELIA_SERVER_MAX_BATCH)"
        );
        assert_eq!(
            told("", &[("PARHELIA_SERVER_MAX_BATCHES", "1")]),
            "PARHELIA_SERVER_MAX_BATCHES is not a setting; did you mean PARHELIA_SERVER_MAX_BATCH?"
        );
        let misfit = told("[docker]\nsupervisor = 'off'\n", &[("PARHELIA_DOCKER_SUPERVISOR", "perhaps")]);
        assert!(misfit.contains("docker.supervisor = 'perhaps'"), "{misfit}");
        assert!(!told("", &[("PARHELIA_DATABASE_URL", "mysql://ann:s3cret@h/d")]).contains("s3cret"));
        assert!(told("[server]\ntls_cert = 'a'\n", &[]).contains("server.tls_key"));
    }

    /// The list and the structures are two places: this holds them together.
    #[test]
    fn every_field_is_in_the_list_and_every_key_is_a_field() {
        let mut whole = toml::Table::new();
        for key in keys::ALL {
            let value = match key.kind {
                Kind::Int { low, .. } => Value::Integer(low.max(1)),
                Kind::Real { most, .. } => Value::Float(most),
                Kind::Bool | Kind::Switch => Value::Boolean(true),
                Kind::Text if key.name == "docker.supervisor" => Value::String("off".into()),
                Kind::Text if key.name == "log.format" => Value::String("json".into()),
                Kind::Text if key.name == "log.level" => Value::String("warn".into()),
                Kind::List => words("x"),
                Kind::Text | Kind::Secret => Value::String("x".into()),
            };
            match key.name.split_once('.') {
                None => drop(whole.insert(key.name.to_owned(), value)),
                Some((section, name)) => {
                    let section = whole.entry(section).or_insert_with(|| Value::Table(Table::new()));
                    section.as_table_mut().unwrap().insert(name.to_owned(), value);
                }
            }
        }
        // Unknown fields are refused, so every key is one; and with all of them set none is left out.
        let config = Config::deserialize(whole).unwrap();
        let shown = serde_json::to_value(&config).unwrap();
        for (section, value) in shown.as_object().unwrap() {
            let Some(fields) = value.as_object() else { continue };
            for field in fields.keys() {
                let name = format!("{section}.{field}");
                assert!(keys::find(&name).is_some(), "{name} is not in the list");
            }
        }
    }

    #[test]
    fn a_broken_address_shows_no_password() {
        for file in [
            "[server]\ndatabase_postgres://ann:s3cret@db.example/parhelia'\n",
            "[server]\ndatabase_url = 'postgres://ann:s3cret@db.example/parhelia\n",
            "[server]\ndatabase_url = 'postgres:/ann:s3cret@db.example/parhelia\n",
            "[server]\nlisten = { a = 'x://ann:s3cret@db' }\n",
        ] {
            let error = Config::load(layers(file, &[])).unwrap_err().to_string();
            assert!(!error.contains("s3cret"), "{error}");
            assert!(error.contains("line 2"), "{error}");
        }
    }
}
