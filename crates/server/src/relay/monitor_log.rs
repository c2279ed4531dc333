//! `monitor.log`: the history as JSON lines in a file, for tools that read files. The file is its own memory: after
//! a restart it goes on after its last whole line, so no event is in it twice and none is missing. What a crash left
//! of a line is cut off.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parhelia_core::config;
use parhelia_core::event::Event;
use parhelia_core::monitor_log::{event_id, line};
use parhelia_store::Store;
use tokio::sync::watch;
use tracing::{error, warn};

use super::tail::Tail;
use crate::loops::driver::Ended;
use crate::loops::stopped;

/// While the file cannot be written.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Of the end of a file that is looked at for its last line; then twice as much.
const LOOK_BACK: u64 = 64 << 10;
/// How every line begins.
const BEGINNING: &[u8] = b"{\"ts\":";

#[derive(Debug)]
pub struct MonitorLog {
    path: PathBuf,
    max_bytes: u64,
    keep: u64,
}

impl MonitorLog {
    pub fn new(home: &Path, config: &config::MonitorLog) -> Self {
        Self { path: home.join(&config.path), max_bytes: config.max_bytes, keep: config.keep }
    }

    /// Follows the history until the server stops. A log that is new begins after `from`, and so does one of another
    /// history.
    pub async fn run(self, store: Store, from: i64, mut stopping: watch::Receiver<bool>) -> Ended {
        let log = Arc::new(self);
        let begun = tokio::select! {
            () = stopped(&mut stopping) => return Ended::Shutdown,
            begun = log.persist(|log| log.recover()) => begun,
        };
        let newest = tokio::select! {
            () = stopped(&mut stopping) => return Ended::Shutdown,
            newest = newest(&store) => newest,
        };
        let mut tail = Tail::from(&store, begun.filter(|id| *id <= newest).unwrap_or(from));
        loop {
            let batch = tokio::select! {
                () = stopped(&mut stopping) => return Ended::Shutdown,
                batch = tail.next() => batch,
            };
            if let Some(lost) = batch.lost {
                warn!(
                    after = lost.after,
                    oldest = lost.oldest,
                    "events were deleted before they were logged"
                );
            }
            let events = Arc::new(batch.events);
            tokio::select! {
                () = stopped(&mut stopping) => return Ended::Shutdown,
                () = log.persist(move |log| log.append(&events)) => {}
            }
        }
    }

    /// Does it, and again until it is done: a full disk delays the log, and nothing else.
    async fn persist<T: Default + Send + 'static>(
        self: &Arc<Self>,
        work: impl Fn(&Self) -> io::Result<T> + Send + Sync + 'static,
    ) -> T {
        let work = Arc::new(work);
        let mut pause = FIRST_PAUSE;
        let mut told = false;
        loop {
            let (log, doing) = (self.clone(), work.clone());
            match tokio::task::spawn_blocking(move || doing(&log)).await {
                Ok(Ok(done)) => return done,
                Ok(Err(error)) if !told => {
                    error!(path = %self.path.display(), %error, "the monitor log cannot be written; trying again");
                    told = true;
                }
                Ok(Err(_)) => {}
                // Only when the runtime is going down.
                Err(_) => return T::default(),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// The event of the last whole line. Whatever follows that line is cut off.
    fn recover(&self) -> io::Result<Option<i64>> {
        match repaired(&self.path)? {
            Some(id) => Ok(Some(id)),
            // It was set aside, and nothing has been written since.
            None => repaired(&self.aside(1)),
        }
    }

    fn aside(&self, n: u64) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(format!(".{n}"));
        PathBuf::from(name)
    }

    /// Appends what the file does not have yet: a try that failed half-way may have written some of it.
    fn append(&self, events: &[Event]) -> io::Result<()> {
        let has = self.recover()?.unwrap_or(i64::MIN);
        let first = events.first().map_or(i64::MAX, |event| event.id);
        let last = events.last().map_or(i64::MIN, |event| event.id);
        // Another history's numbers say nothing about ours.
        let done = |event: &Event| (first..=last).contains(&has) && event.id <= has;
        let mut text = String::new();
        let mut size = fs::metadata(&self.path).map(|file| file.len()).unwrap_or(0);
        for event in events.iter().filter(|event| !done(event)) {
            let line = line(event);
            let bytes = line.len() as u64 + 1;
            if size > 0 && size + bytes > self.max_bytes {
                self.flush(&mut text)?;
                self.set_aside()?;
                size = 0;
            }
            text.push_str(&line);
            text.push('\n');
            size += bytes;
        }
        self.flush(&mut text)
    }

    fn flush(&self, text: &mut String) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        if let Some(dir) = self.path.parent() {
            fs::create_dir_all(dir)?;
        }
        // Opened anew each time: whoever moves the file away gets no more of it.
        let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(&self.path)?;
        file.write_all(text.as_bytes())?;
        text.clear();
        Ok(())
    }

    /// Only up to the first free number: a rotation that was cut off costs no old file.
    fn set_aside(&self) -> io::Result<()> {
        let free = (1..=self.keep).find(|n| !self.aside(*n).exists()).unwrap_or(self.keep);
        for n in (1..free).rev() {
            fs::rename(self.aside(n), self.aside(n + 1))?;
        }
        fs::rename(&self.path, self.aside(1))
    }
}

async fn newest(store: &Store) -> i64 {
    let mut pause = FIRST_PAUSE;
    loop {
        match store.last_event_id().await {
            Ok(id) => return id,
            Err(error) => {
                warn!(%error, "the end of the history cannot be read; trying again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// Cuts a file after its last line that is whole, and gives that line's event. `None`: there is no such line.
fn repaired(path: &Path) -> io::Result<Option<i64>> {
    let mut file = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let size = file.metadata()?.len();
    let mut span = LOOK_BACK;
    loop {
        let start = size.saturating_sub(span);
        let end = read_from(&mut file, start)?;
        // Not the first piece, unless the file begins there: it may be the end of a longer line.
        let skip =
            if start == 0 { 0 } else { end.iter().position(|b| *b == b'\n').map_or(end.len(), |i| i + 1) };
        let mut upto = end.len();
        while let Some(stop) = end[skip..upto].iter().rposition(|b| *b == b'\n').map(|i| skip + i) {
            let begin = end[skip..stop].iter().rposition(|b| *b == b'\n').map_or(skip, |i| skip + i + 1);
            if let Some(id) = std::str::from_utf8(&end[begin..stop]).ok().and_then(event_id) {
                let whole = start + stop as u64 + 1;
                if whole < size {
                    file.set_len(whole)?;
                }
                return Ok(Some(id));
            }
            upto = begin;
            if upto == skip {
                break;
            }
        }
        if start == 0 {
            // Not one whole line of ours. The beginning of one goes; what somebody else wrote is not touched.
            if !end.starts_with(BEGINNING) && !BEGINNING.starts_with(&end) {
                let why = "it holds something else: move it away, or set another monitor_log.path";
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
            if size > 0 {
                file.set_len(0)?;
            }
            return Ok(None);
        }
        span = span.saturating_mul(2);
    }
}

fn read_from(file: &mut File, start: u64) -> io::Result<Vec<u8>> {
    let mut end = Vec::new();
    file.seek(SeekFrom::Start(start))?;
    file.read_to_end(&mut end)?;
    Ok(end)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test the panic is the message")]
mod tests {
    use parhelia_core::event::{EventType, Source};

    use super::*;

    fn event(id: i64) -> Event {
        Event {
            id,
            timestamp: parhelia_core::Timestamp::from_second(1_800_000_000 + id).unwrap(),
            event_type: EventType::ServerStarted,
            container_id: None,
            worker_id: None,
            task_id: None,
            session_id: None,
            old_value: None,
            new_value: None,
            message: Some("x".repeat((id % 300) as usize)),
            details: serde_json::json!({}),
            source: Source::System,
            owner_id: None,
            epoch: None,
        }
    }

    fn events(ids: std::ops::RangeInclusive<i64>) -> Vec<Event> {
        ids.map(event).collect()
    }

    fn log(dir: &Path, max_bytes: u64, keep: u64) -> MonitorLog {
        MonitorLog { path: dir.join("monitor.log"), max_bytes, keep }
    }

    /// Every event in the files, the oldest file first.
    fn written(log: &MonitorLog) -> Vec<i64> {
        let mut files: Vec<PathBuf> = (1..=log.keep).rev().map(|n| log.aside(n)).collect();
        files.push(log.path.clone());
        let text: String = files.iter().map(|path| fs::read_to_string(path).unwrap_or_default()).collect();
        text.lines().map(|line| event_id(line).unwrap_or_else(|| panic!("{line}"))).collect()
    }

    #[test]
    fn it_is_set_aside_by_size_and_only_so_many_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let log = log(dir.path(), 4096, 2);
        for start in (1..500).step_by(10) {
            log.append(&events(start..=start + 9)).unwrap();
        }
        let all = written(&log);
        assert_eq!(*all.last().unwrap(), 500);
        assert!(all.windows(2).all(|pair| pair[1] == pair[0] + 1), "{all:?}");
        for n in [1, 2] {
            assert!((3000..=4096).contains(&fs::metadata(log.aside(n)).unwrap().len()));
        }
        assert!(!log.aside(3).exists() && fs::metadata(&log.path).unwrap().len() <= 4096);
        // A line that is longer than a whole file has one to itself.
        let long = Event { message: Some("y".repeat(10_000)), ..event(501) };
        log.append(&[long]).unwrap();
        log.append(&events(502..=502)).unwrap();
        assert!(written(&log).ends_with(&[500, 501, 502]));
        assert_eq!(fs::read_to_string(log.aside(1)).unwrap().lines().count(), 1);
    }

    #[test]
    fn wherever_it_is_cut_it_goes_on_without_a_gap_or_a_repetition() {
        let dir = tempfile::tempdir().unwrap();
        let log = log(dir.path(), 1 << 20, 2);
        log.append(&events(1..=5)).unwrap();
        let whole = fs::read(&log.path).unwrap();
        for cut in 0..=whole.len() {
            fs::write(&log.path, &whole[..cut]).unwrap();
            let has = log.recover().unwrap().unwrap_or(0);
            log.append(&events(has + 1..=7)).unwrap();
            assert_eq!(written(&log), [1, 2, 3, 4, 5, 6, 7], "cut at {cut}");
        }
        // What a failing disk left behind the last whole line goes too.
        fs::write(&log.path, [&whole[..], b"\0\0\0\0\n{\"ts\":1}\n{"].concat()).unwrap();
        assert_eq!(log.recover().unwrap(), Some(5));
        assert_eq!(fs::read(&log.path).unwrap(), whole);
        // What is not ours is left alone.
        fs::write(&log.path, "root:x:0:0\n").unwrap();
        assert!(log.recover().unwrap_err().to_string().contains("move it away"));
        assert_eq!(fs::read(&log.path).unwrap(), b"root:x:0:0\n");
        // A long rest is looked through to its beginning.
        fs::write(&log.path, [&whole[..], &vec![b'x'; 300_000][..]].concat()).unwrap();
        assert_eq!(log.recover().unwrap(), Some(5));
    }

    #[test]
    fn a_rotation_that_was_cut_off_loses_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let log = log(dir.path(), 4096, 3);
        log.append(&events(1..=3)).unwrap();
        log.set_aside().unwrap();
        // The server died here: the place is in the one that was set aside.
        assert_eq!(log.recover().unwrap(), Some(3));
        log.append(&events(4..=5)).unwrap();
        // Here it died after the first of the renames.
        fs::rename(log.aside(1), log.aside(2)).unwrap();
        log.set_aside().unwrap();
        log.append(&events(6..=6)).unwrap();
        assert_eq!(written(&log), [1, 2, 3, 4, 5, 6]);
        // The same batch again, after a failure half-way.
        log.append(&events(5..=8)).unwrap();
        assert_eq!(written(&log), [1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
