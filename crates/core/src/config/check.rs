//! What must fit together, beyond the range of each value: which key to change, and to what.

use super::Config;

/// A value that does not fit: its key, the value, and what it must be.
pub(super) struct Misfit {
    pub(super) key: &'static str,
    pub(super) value: String,
    pub(super) allowed: String,
}

fn misfit(key: &'static str, value: impl ToString, allowed: impl Into<String>) -> Misfit {
    Misfit { key, value: value.to_string(), allowed: allowed.into() }
}

pub(super) fn first_misfit(config: &Config) -> Option<Misfit> {
    let (r, h, s) = (&config.reconciler, &config.health, &config.server);
    let scheme = |url: &str| url.starts_with("postgres://") || url.starts_with("postgresql://");
    if s.database_url.as_ref().is_some_and(|url| !scheme(&url.0)) {
        // It may hold a password.
        let allowed = "postgres://USER:PASSWORD@HOST:5432/DATABASE; leave it out for the home's own file";
        return Some(misfit("server.database_url", "(hidden)", allowed));
    }
    let odd = |host: &&String| host.is_empty() || host.contains(['/', ' ', '*']);
    if let Some(host) = s.allowed_hosts.iter().find(odd) {
        let allowed = "names without a scheme, as parhelia.example.com or parhelia.example.com:7717";
        return Some(misfit("server.allowed_hosts", host, allowed));
    }
    if let Some((key, value, allowed)) = crate::alert::first_misfit(&config.alerts) {
        return Some(misfit(key, value, allowed));
    }
    if let Some((key, value, allowed)) = crate::engine::first_misfit(&config.engines) {
        return Some(misfit(key, value, allowed));
    }
    let path = &config.monitor_log.path;
    if path.is_empty() || path.ends_with('/') {
        return Some(misfit("monitor_log.path", format!("'{path}'"), "the path of a file"));
    }
    if h.degraded_after_seconds >= r.stale_threshold_seconds
        || r.stale_threshold_seconds >= h.dead_after_seconds
    {
        let allowed = format!(
            "between health.degraded_after_seconds ({}) and health.dead_after_seconds ({})",
            h.degraded_after_seconds, h.dead_after_seconds
        );
        return Some(misfit("reconciler.stale_threshold_seconds", r.stale_threshold_seconds, allowed));
    }
    if h.heartbeat_interval_seconds >= h.degraded_after_seconds {
        let allowed = format!("less than health.degraded_after_seconds ({})", h.degraded_after_seconds);
        return Some(misfit("health.heartbeat_interval_seconds", h.heartbeat_interval_seconds, allowed));
    }
    if let Some(host) = &config.docker.host
        && !(host.starts_with("unix:///") || host.starts_with("tcp://") || host.starts_with("https://"))
    {
        return Some(misfit("docker.host", format!("'{host}'"), "unix:///path or tcp://host:port"));
    }
    if let Some(endpoint) = &config.otlp.endpoint
        && !(endpoint.starts_with("http://") || endpoint.starts_with("https://"))
    {
        return Some(misfit("otlp.endpoint", format!("'{endpoint}'"), "http://host:4318 or https://host"));
    }
    let c = &config.clickhouse;
    if let Some(url) = &c.url {
        let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
        if rest.is_none_or(|rest| {
            rest.is_empty() || rest.starts_with('/') || rest.contains(['@', '?', '#', ' '])
        }) {
            // It may hold a password, where none belongs.
            let allowed = "http://host:8123 or https://host:8443; user and password have keys of their own";
            return Some(misfit("clickhouse.url", "(hidden)", allowed));
        }
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if c.database.is_empty() || !c.database.chars().all(plain) {
        let allowed = "the name of a database: letters, digits and '_'";
        return Some(misfit("clickhouse.database", format!("'{}'", c.database), allowed));
    }
    if s.tls_cert.is_some() != s.tls_key.is_some() {
        let (missing, other) = if s.tls_cert.is_none() { ("tls_cert", "key") } else { ("tls_key", "cert") };
        let key = if missing == "tls_cert" { "server.tls_cert" } else { "server.tls_key" };
        return Some(misfit(key, "nothing", format!("a PEM file, because server.tls_{other} is set")));
    }
    config.prices.iter().find_map(|price| {
        let figures =
            [price.sandbox_hour, price.cpu_core_second, price.memory_gib_second, price.default_cpu_cores];
        let memory = price.default_memory_mb as f64;
        let mut all = figures.iter().chain([&memory]).chain(price.gpu_second.values());
        let bad = all.find(|v| !v.is_finite() || **v < 0.0)?;
        Some(misfit("prices", bad, "a finite number that is not negative"))
    })
}
