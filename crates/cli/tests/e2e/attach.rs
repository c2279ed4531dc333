//! A person at a terminal (tmux): interactive programs through `exec` and `jobs attach`, resized, detached, and found
//! again after the server was killed.

use std::path::PathBuf;
use std::process::Command;

use crate::harness::{Home, eventually, parhelia};

/// A terminal of its own, with a shell in it.
pub(crate) struct Tmux {
    dir: tempfile::TempDir,
}

impl Tmux {
    pub(crate) fn new(home: &Home) -> Self {
        let tmux = Self { dir: tempfile::tempdir().unwrap() };
        // A prompt that nothing else prints, and no file of whoever runs the tests.
        let shell = "env PS1='outer> ' bash --norc --noprofile";
        let started = tmux
            .command(&["-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", shell])
            .env("PARHELIA_HOME", home.path())
            .env("PATH", tmux.path())
            .env("LANG", "C.UTF-8")
            .current_dir(tmux.dir.path())
            .status();
        assert!(started.expect("the program tmux").success());
        tmux.shows("outer>");
        tmux
    }

    /// The tested binary first.
    fn path(&self) -> String {
        let bin: PathBuf = parhelia().parent().unwrap().to_owned();
        format!("{}:{}", bin.display(), std::env::var("PATH").unwrap())
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.dir.path().join("tmux")).args(args).env_remove("TMUX");
        command
    }

    pub(crate) fn tell(&self, args: &[&str]) {
        assert!(self.command(args).status().unwrap().success(), "{args:?}");
    }

    /// Letter by letter, then Enter.
    pub(crate) fn types(&self, text: &str) {
        self.tell(&["send-keys", "-l", text]);
        self.press(&["Enter"]);
    }

    /// Types it at the shell on an empty screen, so that what is awaited next is not what stood there before.
    pub(crate) fn runs(&self, command: &str) {
        self.types("clear");
        self.until("the screen is empty", |screen| screen.trim() == "outer>");
        self.types(command);
    }

    pub(crate) fn press(&self, keys: &[&str]) {
        self.tell(&[&["send-keys"], keys].concat());
    }

    pub(crate) fn screen(&self) -> String {
        let out = self.command(&["capture-pane", "-p"]).output().unwrap();
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    pub(crate) fn shows(&self, text: &str) {
        self.until(&format!("the terminal shows '{text}'"), |screen| screen.contains(text));
    }

    /// The last line that has anything on it.
    pub(crate) fn ends_with(&self, text: &str) {
        self.until(&format!("the terminal's last line is '{text}'"), |screen| {
            screen.trim_end().lines().last().is_some_and(|line| line.trim_end() == text.trim_end())
        });
    }

    pub(crate) fn until(&self, what: &str, shown: impl Fn(&str) -> bool) {
        let mut last = String::new();
        let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            eventually(what, || {
                last = self.screen();
                shown(&last).then_some(())
            })
        }));
        assert!(seen.is_ok(), "{what}, but it shows:\n{last}");
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = self.command(&["kill-server"]).status();
    }
}

#[test]
fn a_shell_is_used_resized_left_and_found_again_after_the_server_was_killed() {
    let home = Home::new();
    let server = home.up(&[]);
    let tmux = Tmux::new(&home);
    tmux.types("parhelia exec --name work --env PS1='inner> ' -- bash --norc --noprofile");
    tmux.ends_with("inner>");
    tmux.types("echo sum $((40 + 2)); tty | cut -c1-9");
    tmux.shows("sum 42");
    tmux.shows("/dev/pts/");
    tmux.types("stty size");
    tmux.shows("30 100");
    tmux.tell(&["resize-window", "-x", "90", "-y", "24"]);
    tmux.types("clear; until [ \"$(stty size)\" = '24 90' ]; do sleep 0.05; done; echo re''sized");
    tmux.shows("resized");
    // Ctrl-C is for what runs in there, and for nothing else.
    tmux.types(
        "sh -c 'trap \"echo inter\\\"\\\"rupted; exit 0\" INT; echo rea\"\"dy; while :; do sleep 0.05; done'",
    );
    tmux.shows("ready");
    tmux.press(&["C-c"]);
    tmux.shows("interrupted");
    tmux.ends_with("inner>");
    tmux.types("mark=kept");

    tmux.press(&["C-p", "C-q"]);
    tmux.shows("detached; 'parhelia jobs attach");
    tmux.ends_with("outer>");
    tmux.runs("stty -a | grep -o ' echo '");
    tmux.until("the terminal echoes again", |screen| screen.lines().any(|line| line.trim() == "echo"));
    server.kill();
    let _server = home.up(&[]);
    tmux.runs("parhelia jobs attach work");
    tmux.ends_with("inner>");
    tmux.types("echo it is $mark");
    tmux.shows("it is kept");
    // The keys that detach reach the shell when they are not typed whole.
    tmux.press(&["C-p"]);
    tmux.shows("inner> echo it is $mark");
    tmux.press(&["C-u"]);
    tmux.types("exit 6");
    tmux.ends_with("outer>");
    tmux.types("echo code $?");
    tmux.shows("code 6");
}

#[test]
fn an_editor_is_left_in_the_middle_and_writes_its_file_later() {
    let home = Home::new();
    let server = home.up(&[]);
    let tmux = Tmux::new(&home);
    tmux.types("parhelia exec --name edit -- vim -u NONE -N -n story.txt");
    tmux.shows("\"story.txt\" [New");
    tmux.press(&["i"]);
    tmux.shows("-- INSERT --");
    tmux.types("once upon a time");
    tmux.tell(&["resize-window", "-x", "80", "-y", "20"]);
    tmux.until("it has drawn itself anew", |screen| {
        screen.lines().count() == 20 && screen.contains("-- INSERT --") && screen.contains("once upon a time")
    });
    tmux.press(&["C-p", "C-q"]);
    tmux.shows("detached;");
    tmux.until("the shell's screen is back", |screen| !screen.contains("-- INSERT --"));
    server.kill();

    let _server = home.up(&[]);
    tmux.types("parhelia jobs attach edit");
    tmux.until("its screen is drawn again", |screen| {
        screen.contains("once upon a time") && screen.contains("-- INSERT --")
    });
    tmux.types("there was a server");
    tmux.press(&["Escape"]);
    tmux.types(":wq");
    tmux.ends_with("outer>");
    let written = std::fs::read_to_string(tmux.dir.path().join("story.txt")).unwrap();
    assert_eq!(written, "once upon a time\nthere was a server\n\n");
}

#[test]
fn two_at_one_job_see_the_same_and_either_may_leave() {
    let home = Home::new();
    let _server = home.up(&[]);
    let (one, two) = (Tmux::new(&home), Tmux::new(&home));
    one.types("parhelia exec --name both --env PS1='inner> ' -- bash --norc --noprofile");
    one.ends_with("inner>");
    two.runs("parhelia jobs attach both");
    two.ends_with("inner>");
    one.types("echo from $((1 + 1)) ends");
    two.shows("from 2 ends");
    two.types("echo back $((2 + 2))");
    one.shows("back 4");
    one.press(&["C-p", "C-q"]);
    one.ends_with("outer>");
    two.types("exit 3");
    two.ends_with("outer>");
    two.types("echo code $?");
    two.shows("code 3");
}
