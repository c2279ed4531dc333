//! What a process says of itself while it runs: its log on standard error, as text or JSON, and its spans to an OTLP
//! collector where one is configured. A collector that is slow or gone costs nothing but its spans: what waits for
//! it is bounded, and nobody waits with it.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, SdkTracer, SdkTracerProvider};
use parhelia_core::config::{Config, LogFormat, Otlp};
use tokio::runtime::Handle;
use tracing::Dispatch;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use crate::error::{CliError, Exit, Result};

/// One export, however slow the collector is.
const EXPORT_PATIENCE: Duration = Duration::from_secs(5);
/// For the last spans when the server stops.
const FAREWELL: Duration = Duration::from_secs(2);
/// Spans that wait for the next export; more are left out.
const QUEUE: usize = 4096;

/// Held while the process runs.
#[derive(Debug, Default)]
pub(crate) struct Telemetry(Option<SdkTracerProvider>);

impl Drop for Telemetry {
    fn drop(&mut self) {
        if let Some(provider) = &self.0 {
            // A collector that is gone keeps nobody.
            let _ = provider.shutdown_with_timeout(FAREWELL);
        }
    }
}

/// The log of a command that is a client: quiet, unless `-v` or PARHELIA_LOG say otherwise.
pub(crate) fn of_client(verbose: u8) -> Telemetry {
    listener(log(verbose, ["warn", "info", "debug", "trace"], LogFormat::Text), None).init();
    Telemetry::default()
}

/// The log of a server, and its spans if they are wanted.
pub(crate) fn of_server(verbose: u8, config: &Config, runtime: &Handle) -> Result<Telemetry> {
    let level = config.log.level.as_str();
    let layer = log(verbose, [level, "debug", "trace", "trace"], config.log.format);
    let provider = match &config.otlp.endpoint {
        Some(endpoint) => Some(provider(endpoint, &config.otlp, runtime)?),
        None => None,
    };
    listener(layer, provider.as_ref().map(|provider| provider.tracer("parhelia"))).init();
    Ok(Telemetry(provider))
}

type BoxedLayer = Box<dyn Layer<Registry> + Send + Sync>;

fn listener(log: BoxedLayer, tracer: Option<SdkTracer>) -> Dispatch {
    let registry = tracing_subscriber::registry().with(log);
    // Not `with(None)`: a layer that is none wants everything, so every span of every request would be made.
    let Some(tracer) = tracer else { return registry.into() };
    let ours = filter_fn(|meta| meta.is_span() && meta.target() == parhelia_core::TRACES);
    let spans = tracing_opentelemetry::layer().with_tracer(tracer).with_location(false).with_threads(false);
    registry.with(spans.with_filter(ours)).into()
}

/// `levels` by how often `-v` was given.
fn log(verbose: u8, levels: [&str; 4], format: LogFormat) -> BoxedLayer {
    let level = levels[usize::from(verbose).min(levels.len() - 1)];
    // Of the libraries only what matters, unless everything is wanted.
    let default = if verbose >= 3 {
        level.to_owned()
    } else {
        format!(
            "warn,parhelia={level},parhelia_server={level},parhelia_providers={level},parhelia_store={level}"
        )
    };
    let filter = EnvFilter::try_from_env("PARHELIA_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    lines(filter, format)
}

fn lines(filter: EnvFilter, format: LogFormat) -> BoxedLayer {
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    match format {
        LogFormat::Text => {
            let colours = anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never;
            lines.with_ansi(colours).with_filter(filter).boxed()
        }
        LogFormat::Json => lines.with_ansi(false).json().with_filter(filter).boxed(),
    }
}

fn provider(endpoint: &str, otlp: &Otlp, runtime: &Handle) -> Result<SdkTracerProvider> {
    let failed = |why: String| CliError::new(Exit::Usage, "otlp", format!("cannot send traces: {why}"));
    let headers = match &otlp.headers_file {
        Some(path) => headers(Path::new(path)).map_err(failed)?,
        None => Default::default(),
    };
    let client = reqwest::Client::builder()
        .timeout(EXPORT_PATIENCE)
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(|e| failed(e.to_string()))?;
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_http_client(Collector { client, runtime: runtime.clone() })
        .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
        .with_timeout(EXPORT_PATIENCE)
        .with_headers(headers)
        .build()
        .map_err(|e| failed(e.to_string()))?;
    let batches = BatchConfigBuilder::default()
        .with_max_queue_size(QUEUE)
        .with_scheduled_delay(Duration::from_secs(1))
        .build();
    let resource = Resource::builder_empty()
        .with_service_name("parhelia")
        .with_attribute(opentelemetry::KeyValue::new("service.version", parhelia_core::VERSION))
        .build();
    Ok(SdkTracerProvider::builder()
        .with_span_processor(BatchSpanProcessor::builder(exporter).with_batch_config(batches).build())
        .with_resource(resource)
        .build())
}

/// `name: value` on each line. The values are secrets: an error names the line and nothing of it.
fn headers(path: &Path) -> std::result::Result<std::collections::HashMap<String, String>, String> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|e| format!("{shown} cannot be read: {e}"))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(n, line)| {
            let (name, value) = line
                .split_once(':')
                .ok_or_else(|| format!("line {} of {shown} is not 'name: value'", n + 1))?;
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        })
        .collect()
}

/// The collector, through the client that we have anyway. Exports come from a thread of their own, which only waits
/// for a task of the server's runtime.
#[derive(Debug)]
struct Collector {
    client: reqwest::Client,
    runtime: Handle,
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> std::result::Result<Response<Bytes>, HttpError> {
        let request = request.try_into()?;
        let client = self.client.clone();
        let sent = self.runtime.spawn(async move {
            let answer = client.execute(request).await?;
            let status = answer.status();
            Ok::<_, reqwest::Error>((status, answer.bytes().await?))
        });
        let (status, body) = sent.await??;
        Ok(Response::builder().status(status).body(body)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_collector_no_span_is_made_and_the_log_goes_on() {
        let log = || lines(EnvFilter::new("warn,parhelia_server=info"), LogFormat::Text);
        let listener = listener(log(), None);
        tracing::dispatcher::with_default(&listener, || {
            assert!(tracing::info_span!(target: parhelia_core::TRACES, "http").is_disabled());
            assert!(tracing::enabled!(target: "parhelia_server", tracing::Level::INFO));
        });
        let provider = SdkTracerProvider::builder().build();
        let tracer = provider.tracer("parhelia");
        let listener = super::listener(log(), Some(tracer));
        tracing::dispatcher::with_default(&listener, || {
            assert!(!tracing::info_span!(target: parhelia_core::TRACES, "http").is_disabled());
        });
    }

    #[test]
    fn headers_are_lines_and_a_mistake_shows_nothing_of_them() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("headers");
        std::fs::write(&file, "authorization: Bearer a:b\n\nx-team: 7\n").unwrap();
        let read = headers(&file).unwrap();
        assert_eq!((read["authorization"].as_str(), read["x-team"].as_str()), ("Bearer a:b", "7"));
        std::fs::write(&file, "x-team: 7\ns3cret\n").unwrap();
        let error = headers(&file).unwrap_err();
        assert!(error.contains("line 2 of") && !error.contains("s3cret"), "{error}");
    }
}
