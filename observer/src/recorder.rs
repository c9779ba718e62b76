//! Writes down what is seen, on a thread of its own, so that a slow disk delays nothing that is timed. Once a second it
//! takes what was seen, reads what is new in the server's step log, and appends both to the recording.

use crate::progress::Progress;
use crate::tail::Tail;
use foretoken_recordings::recording::{Event, RecordingWriter};
use foretoken_sim::Time;
use foretoken_spec::problem::{Problem, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// At most this much of a run is lost with its process.
const EVERY: Duration = Duration::from_secs(1);
/// How long a full disk is waited for at the end.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server logs a step after it has sent the step's tokens: its last lines come this long after the last answer.
const LAST_LINES: Duration = Duration::from_millis(300);

/// The clock of a run, and the writer of its events.
#[derive(Clone, Debug)]
pub struct Recorder {
    start: Instant,
    events: Sender<Event>,
}

impl Recorder {
    /// Starts to record now. The handle gives the recording's fate when all clones of the recorder are gone.
    pub fn start(
        writer: RecordingWriter,
        log: Option<Tail>,
        progress: Progress,
        interrupt: Arc<AtomicBool>,
    ) -> (Recorder, JoinHandle<Result<()>>) {
        let start = Instant::now();
        let (events, seen) = channel();
        let thread = std::thread::spawn(move || write(writer, log, progress, &seen, start, &interrupt));
        (Recorder { start, events }, thread)
    }

    /// The time on the run's clock.
    pub fn now(&self) -> Time {
        since(self.start)
    }

    /// The run's start.
    pub fn started(&self) -> Instant {
        self.start
    }

    /// Writes down what was seen.
    pub fn saw(&self, event: Event) {
        // The thread ends when this sender is gone, not before.
        let _ = self.events.send(event);
    }
}

fn since(start: Instant) -> Time {
    Time(start.elapsed().as_nanos() as u64 * 1000)
}

fn write(
    mut writer: RecordingWriter,
    mut log: Option<Tail>,
    mut progress: Progress,
    seen: &Receiver<Event>,
    start: Instant,
    interrupt: &AtomicBool,
) -> Result<()> {
    let mut batch: Vec<Event> = Vec::new();
    let mut next = start + EVERY;
    let mut open = true;
    let mut said = false;
    while open {
        match seen.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(event) => {
                progress.saw(&event);
                batch.push(event);
                // A stream of events that never pauses is written down all the same.
                if Instant::now() < next {
                    continue;
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                open = false;
                if log.is_some() {
                    std::thread::sleep(LAST_LINES);
                }
            }
        }
        next = Instant::now() + EVERY;
        let lines = log.as_mut().map(Tail::new_lines).unwrap_or_default();
        // The end stays the last thing that a recording says.
        let end = batch.iter().position(|e| matches!(e, Event::End { .. })).unwrap_or(batch.len());
        if !open && let Some(text) = log.as_ref().and_then(Tail::doubts) {
            batch.insert(end, Event::Note { at: since(start), text });
        }
        if !lines.is_empty() {
            batch.insert(end, Event::Log { at: since(start), lines });
        }
        progress.show(since(start));
        if let Err(e) = writer.append(&batch)
            && !said
        {
            said = true;
            progress.say(&format!("{} cannot be written: {e}; what is seen waits in memory", writer.path().display()));
        }
        batch.clear();
    }
    progress.clear();
    last(&mut writer, interrupt)
}

/// Writes what is left. A full disk is tried again for [`PATIENCE`], or until `interrupt` is set.
fn last(writer: &mut RecordingWriter, interrupt: &AtomicBool) -> Result<()> {
    let given_up = Instant::now() + PATIENCE;
    loop {
        let Err(e) = writer.append(&[]) else { return Ok(()) };
        if Instant::now() > given_up || interrupt.load(Ordering::Relaxed) {
            let message = format!("cannot write the recording {}: {e}", writer.path().display());
            let help = format!(
                "the last {} seconds or so are lost, what came before can be read; free some space or choose another folder with -o",
                writer.waiting()
            );
            return Err(Problem::failed(message).help(help));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}
