//! Writes the events of an observed run to its recording on a separate thread, so that a slow disk delays no timed
//! work. Once a second the thread takes the new events, reads new lines of the server's step log, and appends both.

use crate::observe::progress::Progress;
use crate::observe::tail::Tail;
use crate::recordings::recording::{Event, RecordingWriter};
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_sim::Time;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two writes to the recording. If the process is killed, the events since the last write are lost.
const EVERY: Duration = Duration::from_secs(1);
/// How long the recorder, at the end of a run, waits for free space on a full disk.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time between the last answer and the last reading of the server's log. A server may log a step after it has sent
/// the step's tokens, so the log is read once more.
const LAST_LINES: Duration = Duration::from_millis(300);

/// The clock of an observed run, and a channel to the thread that writes the run's events to the recording.
#[derive(Clone, Debug)]
pub struct Recorder {
    start: Instant,
    events: Sender<Event>,
}

impl Recorder {
    /// Starts the run's clock and the thread that writes its recording. The returned handle gives the thread's result.
    /// The thread ends when all clones of the recorder are dropped.
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

    /// Time since the run's start.
    pub fn now(&self) -> Time {
        since(self.start)
    }

    pub fn started(&self) -> Instant {
        self.start
    }

    /// Sends an event of the run to the thread that writes the recording.
    pub fn saw(&self, event: Event) {
        // Sending fails only if the writing thread has ended. The thread ends only after every sender is dropped.
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
                // If events come without a pause, `recv_timeout` never times out. The time for the next write is
                // therefore checked here too.
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
        // The `End` event must be the last event of the recording. Log lines that are read after the run's end are
        // inserted before the `End` event.
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

/// Writes the events that are still in memory to the recording, and waits until they are on the disk. If the disk is
/// full, tries again for [`PATIENCE`], or until `interrupt` is set.
fn last(writer: &mut RecordingWriter, interrupt: &AtomicBool) -> Result<()> {
    let given_up = Instant::now() + PATIENCE;
    loop {
        let Err(e) = writer.append(&[]).and_then(|()| writer.settle()) else { return Ok(()) };
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
