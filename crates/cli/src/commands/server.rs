//! `parhelia up`, `down`, `info` and `version`: the server itself.

use std::time::Duration;

use parhelia_core::api::ServerInfo;
use parhelia_core::time::Clock;
use parhelia_server::home::HomeError;
use parhelia_server::serve::{Ready, ServeError, ServeOptions, serve};
use serde_json::json;

use super::settings;
use crate::args::{Format, UpArgs, VersionArgs};
use crate::autostart;
use crate::client::Client;
use crate::context::Context;
use crate::error::{CliError, Exit, Result};
use crate::give_back::give_back;
use crate::output::text::{self, BOLD, painted, time_utc};

/// How long a server may take to stop.
const STOP_PATIENCE: Duration = Duration::from_secs(30);

pub(super) async fn up(ctx: &Context, args: UpArgs) -> Result<()> {
    if args.on_demand {
        autostart::detach();
    }
    let home = ctx.home()?;
    crate::client::socket_path(&home)?;
    let supervisor = std::env::current_exe().map_err(|e| CliError::io("cannot find my own binary", &e))?;
    let loaded = settings::load(ctx, settings::flags(&args))?;
    if let Some(url) = &loaded.config.server.database_url {
        parhelia_server::serve::check_database_url(&url.0)
            .map_err(|error| CliError::new(Exit::Usage, "database_url", error.to_string()))?;
    }
    let options = ServeOptions {
        config: loaded.config,
        home,
        listen: args.listen,
        on_demand: args.on_demand,
        supervisor,
    };
    let announce = |ready: &Ready| {
        // A server whose output nobody reads serves all the same.
        let _ = greet(ctx, ready, args.on_demand);
        give_back();
    };
    if !args.on_demand {
        replace_on_demand(ctx).await?;
    }
    match serve(options, announce).await {
        Ok(()) => {
            ctx.out.note("Stopped. The sandboxes are left running; the next server finds them again.");
            Ok(())
        }
        Err(error @ ServeError::AlreadyServed { .. }) => {
            Err(CliError::new(Exit::Refused, "already_served", error.to_string()))
        }
        Err(
            error @ (ServeError::NotLoopback { .. }
            | ServeError::BadAddress { .. }
            | ServeError::HalfTls
            | ServeError::Tls { .. }),
        ) => Err(CliError::new(Exit::Usage, "listen", error.to_string())),
        Err(error @ ServeError::Home(HomeError::Shared { .. })) => {
            Err(CliError::new(Exit::Usage, "database_url", error.to_string()))
        }
        Err(error) => Err(CliError::failure("serve_failed", error.to_string())),
    }
}

fn greet(ctx: &Context, ready: &Ready, on_demand: bool) -> Result<()> {
    let http = ready.tcp.map(|address| format!("http://{address}"));
    let data = json!({
        "instance_id": ready.instance_id,
        "socket": ready.socket,
        "http": http,
        "token_file": ready.token_file,
    });
    ctx.out.one(&data, &ready.instance_id, || {
        let heading = painted("Parhelia is up", BOLD);
        let mut screen = format!("{heading} (instance {}).\n", ready.instance_id);
        screen.push_str(&format!("  Socket:      {}\n", ready.socket.display()));
        match &http {
            Some(http) => {
                screen.push_str(&format!("  HTTP:        {http}\n"));
                screen.push_str(&format!("  Token file:  {}\n", ready.token_file.display()));
            }
            None => screen.push_str("  HTTP:        off (see --listen)\n"),
        }
        if !on_demand {
            screen.push_str(FIRST_STEPS);
        }
        screen
    })
}

const FIRST_STEPS: &str = "
Try, in another terminal:
  parhelia containers run -- sleep 600     run something
  parhelia containers                      see it, its health and its cost
  parhelia containers watch                see it live

Ctrl-C stops this server. The sandboxes are left running.
";

/// A server that a command started on demand makes way for one that somebody asked for.
async fn replace_on_demand(ctx: &Context) -> Result<()> {
    let client = Client::local(&ctx.home()?, None, ctx.clock)?;
    match client.get::<ServerInfo>("/server", &[]).await {
        Ok(info) if info.on_demand => {
            ctx.out.note("Taking over from the server that was started on demand.");
            client.shut_down().await?;
            until_stopped(ctx, &client).await
        }
        // No server, or one that stays; `serve` says what there is to say about that.
        _ => Ok(()),
    }
}

pub(super) async fn down(ctx: &Context) -> Result<()> {
    let client = ctx.client_of_running()?;
    if !client.shut_down().await? {
        return told(ctx, false, &format!("No server is running at {}.", client.place()));
    }
    until_stopped(ctx, &client).await?;
    told(ctx, true, "Server stopped. The sandboxes keep running; the next server finds them again.")
}

async fn until_stopped(ctx: &Context, client: &Client) -> Result<()> {
    let deadline = ctx.clock.monotonic() + STOP_PATIENCE;
    // A server stops answering first; its socket goes when everything is written.
    let socket = if ctx.is_remote() { None } else { Some(crate::client::socket_path(&ctx.home()?)?) };
    let there = || socket.as_ref().is_some_and(|path| path.exists());
    while client.is_served().await? || there() {
        if ctx.clock.monotonic() > deadline {
            let message = format!("the server has not stopped within {} seconds", STOP_PATIENCE.as_secs());
            return Err(CliError::timeout(message).fix("its log says why: server.log in the home"));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

fn told(ctx: &Context, stopped: bool, words: &str) -> Result<()> {
    match ctx.out.format() {
        Format::Name => Ok(()),
        _ => ctx.out.one(&json!({ "stopped": stopped }), "", || format!("{words}\n")),
    }
}

pub(super) async fn info(ctx: &Context) -> Result<()> {
    let client = ctx.client()?;
    let info: ServerInfo = client.get("/server", &[]).await?;
    ctx.out.one(&info, &info.instance_id, || screen(&info, client.place()))
}

fn screen(info: &ServerInfo, place: &str) -> String {
    let kind = if info.on_demand { "on demand (leaves when idle)" } else { "until stopped" };
    let epoch = match info.leads {
        true => info.epoch.to_string(),
        false => "does not lead ('parhelia doctor' says whether the database answers)".to_owned(),
    };
    let started = time_utc(info.started_at);
    let rows = [
        ("Version", info.version.as_str()),
        ("Asked at", place),
        ("HTTP", info.listen.as_deref().unwrap_or("off")),
        ("Instance", &info.instance_id),
        ("Home", &info.home),
        ("Home id", &info.home_id),
        ("Owner", &info.owner_id),
        ("Epoch", &epoch),
        ("Started", &started),
        ("Runs", kind),
        ("Providers", &info.providers.join(", ")),
    ]
    .map(|(label, value)| format!("  {:<11} {}\n", format!("{label}:"), text::clean(value)));
    format!("Server\n{}", rows.concat())
}

pub(super) async fn version(ctx: &Context, args: VersionArgs) -> Result<()> {
    let own = parhelia_core::VERSION;
    if !args.server {
        return ctx.out.one(&json!({ "client": own }), own, || format!("parhelia {own}\n"));
    }
    let server: Option<String> = match ctx.client_of_running()?.get::<ServerInfo>("/server", &[]).await {
        Ok(info) => Some(info.version),
        Err(error) if error.code == "no_server" => None,
        Err(error) => return Err(error),
    };
    ctx.out.one(&json!({ "client": own, "server": server }), own, || {
        let of_server = server.as_deref().map_or_else(|| "not running".to_owned(), text::clean);
        format!("parhelia {own}\nserver   {of_server}\n")
    })
}
