use clap::{CommandFactory, Parser};
use parhelia_core::event::EventType;
use parhelia_core::state::{ContainerState, Health};

use super::*;

fn parse(line: &str) -> Result<Cli, String> {
    Cli::try_parse_from(line.split_whitespace()).map_err(|e| e.to_string())
}

fn containers(line: &str) -> ContainersArgs {
    match parse(line).unwrap().command {
        Command::Containers(args) => *args,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_definition_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn every_command_says_what_it_is_for() {
    fn check(command: &clap::Command, path: &str) {
        let path = format!("{path} {}", command.get_name());
        assert!(command.get_about().is_some(), "{path} has no about");
        for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
            assert!(arg.get_help().is_some(), "{path} {} has no help", arg.get_id());
        }
        command.get_subcommands().for_each(|sub| check(sub, &path));
    }
    check(&Cli::command(), "");
}

#[test]
fn bare_containers_is_the_list_and_takes_its_filters() {
    let args = containers("parhelia containers --state running,orphaned --health dead --label a=b -n 5");
    assert!(args.command.is_none());
    assert_eq!(args.list.filter.state, [ContainerState::Running, ContainerState::Orphaned]);
    assert_eq!(args.list.filter.health, [Health::Dead]);
    assert_eq!(args.list.filter.label, [("a".to_owned(), "b".to_owned())]);
    assert_eq!(args.list.limit, Some(5));
}

#[test]
fn global_options_stand_anywhere() {
    for line in [
        "parhelia -o json containers list",
        "parhelia containers -o json list",
        "parhelia containers list -o json",
        "parhelia containers list -ojson",
    ] {
        assert_eq!(parse(line).unwrap().globals.output, Format::Json, "{line}");
    }
    assert!(parse("parhelia containers show c-1 -q").unwrap().globals.quiet);
}

#[test]
fn a_command_to_run_may_follow_with_or_without_dashes() {
    for line in
        ["parhelia containers run --name x -- sleep -v 5", "parhelia containers run --name x sleep -v 5"]
    {
        let Some(ContainersCommand::Run(run)) = containers(line).command else { panic!("{line}") };
        assert_eq!(run.command, ["sleep", "-v", "5"]);
        assert_eq!((run.name.as_deref(), run.provider.as_str()), (Some("x"), "process"));
    }
    assert!(parse("parhelia containers run").is_err());
    let line = "parhelia containers run --memory 2g --cpu 0.5 --env A=1 --env B --idle-timeout 10m -- true";
    let Some(ContainersCommand::Run(run)) = containers(line).command else { panic!() };
    assert_eq!((run.memory, run.cpu), (Some(2048), Some(0.5)));
    assert_eq!(run.env, [("A".into(), Some("1".into())), ("B".into(), None)]);
    assert_eq!(run.idle_timeout.unwrap().as_secs(), 600);
}

#[test]
fn wrong_words_name_the_right_ones() {
    assert!(parse("parhelia containers --state runing").unwrap_err().contains("running"));
    assert!(parse("parhelia containers run --memory 512 -- true").unwrap_err().contains("512m"));
    assert!(parse("parhelia events list --since yesterday").unwrap_err().contains("1h (ago)"));
    assert!(parse("parhelia cleanup").is_err());
    assert!(parse("parhelia cleanup --orphans --dead").is_err());
    assert!(parse("parhelia containers terminate c-1 --force --grace 5s").is_err());
}

#[test]
fn an_event_type_may_be_short() {
    let line = "parhelia events list --type degraded,orphan_detected,container_started";
    let Command::Events(EventsArgs { command: EventsCommand::List(args) }) = parse(line).unwrap().command
    else {
        panic!()
    };
    assert_eq!(
        args.types,
        [EventType::ContainerDegraded, EventType::OrphanDetected, EventType::ContainerStarted]
    );
}
