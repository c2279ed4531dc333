//! What the service says in commands, said in tools: an agent has no command line. Whatever is not known here stays as
//! it is, so that nothing is lost.

/// Commands that stand in sentences, each before those that are a part of it.
const PHRASES: [(&str, &str); 11] = [
    (
        "'parhelia cascade check FILE' shows each with its place",
        "correct each of them and call parhelia_run again",
    ),
    ("see 'parhelia cascade schema'", "give one of the two; the descriptions of both say what is in them"),
    ("'parhelia sessions list --all'", "parhelia_sessions with action=list and status_filter=all"),
    ("'parhelia sessions list'", "parhelia_sessions with action=list"),
    ("'parhelia sessions show'", "parhelia_sessions with action=show"),
    ("'parhelia inbox'", "parhelia_inbox with action=list"),
    ("'parhelia containers --all'", "parhelia_containers with action=list and state_filter=all"),
    ("'parhelia containers'", "parhelia_containers with action=list"),
    ("give --from PHASE", "give from_phase"),
    ("--from PHASE", "from_phase"),
    ("run by 'parhelia exec'", "and not a cascade"),
];

pub(super) fn in_tools(text: &str) -> String {
    PHRASES.iter().fold(text.to_owned(), |text, (command, tool)| text.replace(command, tool))
}

/// A reason for waiting, whose last part is the command that would change it.
pub(super) fn reason_in_tools(reason: &str) -> String {
    let Some((why, command)) = reason.rsplit_once("; parhelia ") else { return in_tools(reason) };
    match call(command) {
        Some(call) => format!("{why}; {call}"),
        None => reason.to_owned(),
    }
}

fn call(command: &str) -> Option<String> {
    let mut words = command.splitn(4, ' ');
    let (group, second) = (words.next()?, words.next()?);
    let (third, rest) = (words.next(), words.next());
    Some(match (group, second, third, rest) {
        ("inbox", "answer", Some(id), Some(answer)) => {
            let answer = answer.strip_prefix("--choice ").unwrap_or(answer);
            format!("parhelia_inbox with action=answer, ids=[{id}] and an answer like {answer}")
        }
        ("inbox", verdict, Some(id), None) => format!("parhelia_inbox with action={verdict} and ids=[{id}]"),
        ("signals", "fire", Some(name), Some(rest)) => {
            let session = rest.strip_prefix("--session ")?;
            format!("parhelia_signals with action=fire, name={name} and session_id={session}")
        }
        ("sessions", "resume", Some(id), None) => {
            format!("parhelia_sessions with action=resume and session_id={id}")
        }
        ("why", id, None, None) => format!("parhelia_sessions with action=show and session_id={id}"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_become_calls() {
        for (said, wanted) in [
            (
                "approve: waits for an approval, for 5m; parhelia inbox approve wait-1",
                "approve: waits for an approval, for 5m; parhelia_inbox with action=approve and ids=[wait-1]",
            ),
            (
                "a: waits for an answer; parhelia inbox answer wait-1 'light green'",
                "a: waits for an answer; parhelia_inbox with action=answer, ids=[wait-1] and an answer like 'light green'",
            ),
            (
                "h: waits for the signal go; parhelia signals fire go --session sess-1",
                "h: waits for the signal go; parhelia_signals with action=fire, name=go and session_id=sess-1",
            ),
            (
                "sub: the session sess-2 is blocked; parhelia why sess-2",
                "sub: the session sess-2 is blocked; parhelia_sessions with action=show and session_id=sess-2",
            ),
            ("it is about to begin", "it is about to begin"),
            ("it waits; parhelia dance", "it waits; parhelia dance"),
        ] {
            assert_eq!(reason_in_tools(said), wanted);
        }
        assert_eq!(
            in_tools("give --from PHASE to do it again from there, as a new session"),
            "give from_phase to do it again from there, as a new session"
        );
    }
}
