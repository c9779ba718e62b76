//! Reads the lines that a server adds to its step log during a run.

use crate::recordings::llama_cpp::is_statistics;
use crate::recordings::step_log::is_step;
use foretoken_run::spec::problem::{Problem, Result};
use std::fs::{File, FileType, Metadata};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Most bytes of the server's log that one call of [`Tail::new_lines`] reads. There is one call per second. If the log
/// grows faster, its lines are read later.
const READING: u64 = 16 << 20;
/// Most bytes of a line of the server's log; longer lines are dropped. The line of a step has about 250 bytes.
const LINE: usize = 16 << 10;
/// Most bytes of lines about steps that are kept per run: about a million steps. Later lines are dropped.
const KEPT: u64 = 256 << 20;

/// A server's log file that is read from its end on: only lines that are written during the run are read.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    file: File,
    at: u64,
    /// The start of the log's last line, whose end is not written yet.
    part: Vec<u8>,
    /// True if the log's unfinished line is longer than [`LINE`].
    long: bool,
    /// Number of lines that were written to the log during the run.
    lines: u64,
    /// Number of bytes of lines about steps that were kept.
    kept: u64,
    /// Number of lines about steps that were dropped because [`KEPT`] was reached.
    beyond: u64,
}

impl Tail {
    /// Opens the server's log at its end.
    pub fn open(path: &Path) -> Result<Tail> {
        const HELP: &str =
            "name the file that the server's output goes to; it must run with --enable-logging-iteration-details";
        let bad = |what: String| Problem::bad_input(format!("--step-log {}: {what}", path.display())).help(HELP);
        // The kind of file is checked before opening, since opening a pipe waits for its writer.
        let kind = std::fs::metadata(path).map_err(|e| bad(e.to_string()))?;
        if !kind.is_file() {
            return Err(bad(format!("it is {}, not a regular file", what_it_is(kind.file_type()))));
        }
        let mut file = File::open(path).map_err(|e| bad(e.to_string()))?;
        let at = file.seek(SeekFrom::End(0)).map_err(|e| bad(e.to_string()))?;
        Ok(Tail { path: path.to_path_buf(), file, at, part: vec![], long: false, lines: 0, kept: 0, beyond: 0 })
    }

    /// The lines about steps that were written to the log since the last call. If the log was truncated, reading goes
    /// on from its start.
    pub fn new_lines(&mut self) -> Vec<String> {
        let log = std::fs::metadata(&self.path).ok().filter(Metadata::is_file);
        if log.is_some_and(|m| m.len() < self.at)
            && let Ok(file) = File::open(&self.path)
        {
            (self.file, self.at, self.long) = (file, 0, false);
            self.part.clear();
        }
        let mut new = Vec::new();
        // If reading the log fails, the next call tries again from the same position.
        let from = self.file.seek(SeekFrom::Start(self.at));
        if from.and_then(|_| (&self.file).take(READING).read_to_end(&mut new)).is_err() {
            return Vec::new();
        }
        self.at += new.len() as u64;
        let mut steps = Vec::new();
        let mut pieces = new.split(|&b| b == b'\n');
        let last = pieces.next_back().unwrap_or_default();
        for piece in pieces {
            self.goes_on(piece);
            self.line_ends(&mut steps);
        }
        self.goes_on(last);
        steps
    }

    /// A message for the end of the run: the log got no lines, got no step lines, or got more step lines than are kept.
    /// `None` if the log has no such problem.
    pub fn doubts(&self) -> Option<String> {
        let log = self.path.display();
        const FLAG: &str = "vLLM writes a line a step with --enable-logging-iteration-details, and llama.cpp its drafter's \
                            statistics after each request with --log-verbosity 4, if it drafts";
        match (self.lines, self.kept, self.beyond) {
            (0, ..) => Some(format!(
                "nothing was written to the step log {log} during the run: does the server's output go there? {FLAG}"
            )),
            (lines, 0, 0) => Some(format!(
                "{lines} lines were written to the step log {log} during the run, and none of them is of a step: {FLAG}"
            )),
            (.., 0) => None,
            (.., beyond) => Some(format!(
                "the step log {log} grew by more than {} MiB of steps during the run: {beyond} later steps are not kept",
                KEPT >> 20
            )),
        }
    }

    /// Appends the bytes `piece` to the log's unfinished line. If the line becomes longer than [`LINE`], its text is
    /// dropped.
    fn goes_on(&mut self, piece: &[u8]) {
        self.long |= self.part.len() + piece.len() > LINE;
        match self.long {
            true => self.part.clear(),
            false => self.part.extend_from_slice(piece),
        }
    }

    /// Ends the log's unfinished line. If the line is about a step and not too long, appends it to `steps`.
    fn line_ends(&mut self, steps: &mut Vec<String>) {
        self.lines += 1;
        let line = std::mem::take(&mut self.part);
        let line = String::from_utf8_lossy(&line);
        if !std::mem::take(&mut self.long) && (is_step(&line) || is_statistics(&line)) {
            let line = line.trim_end_matches('\r').to_owned();
            match self.kept + line.len() as u64 {
                kept if kept <= KEPT => {
                    self.kept = kept;
                    steps.push(line);
                }
                _ => self.beyond += 1,
            }
        }
    }
}

fn what_it_is(kind: FileType) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if kind.is_fifo() {
            return "a pipe";
        }
        if kind.is_char_device() || kind.is_block_device() {
            return "a device";
        }
        if kind.is_socket() {
            return "a socket";
        }
    }
    if kind.is_dir() { "a folder" } else { "something else" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn lines_added_to_a_log_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("server.log");
        let line = |n: u32| format!("1.5 Iteration({n}): iteration elapsed time: 1 ms");
        std::fs::write(&path, line(1) + "\n").unwrap();
        let mut tail = Tail::open(&path).unwrap();
        assert!(tail.new_lines().is_empty(), "what was there before is not of this run");
        let mut file = File::options().append(true).open(&path).unwrap();
        write!(file, "hello\n{}\n{}", line(2), &line(3)[..20]).unwrap();
        assert_eq!(tail.new_lines(), [line(2)]);
        writeln!(file, "{}", &line(3)[20..]).unwrap();
        assert_eq!(tail.new_lines(), [line(3)]);
        std::fs::write(&path, line(4) + "\n").unwrap();
        assert_eq!(tail.new_lines(), [line(4)], "begun again");
        let problem = Tail::open(&dir.path().join("none")).unwrap_err();
        assert!(problem.message().starts_with("--step-log "), "{}", problem.message());
    }

    #[test]
    fn folders_devices_and_pipes_are_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        let pipe = made.is_ok_and(|s| s.success()).then_some((pipe.as_path(), "it is a pipe"));
        let others = [
            (dir.path(), "it is a folder"),
            (Path::new("/dev/null"), "it is a device"),
            (Path::new("/dev/zero"), "it is a device"),
        ];
        for (path, said) in others.into_iter().chain(pipe) {
            let problem = Tail::open(path).unwrap_err();
            assert!(problem.message().contains(said), "{}", problem.message());
        }
    }

    #[test]
    fn an_endless_line_takes_no_memory_and_later_lines_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("server.log");
        std::fs::write(&path, "").unwrap();
        let mut tail = Tail::open(&path).unwrap();
        assert!(tail.doubts().unwrap().starts_with("nothing was written to the step log "));
        let step = "1.5 Iteration(3): iteration elapsed time: 1 ms";
        let mut file = File::options().append(true).open(&path).unwrap();
        write!(file, "{step}{}", "x".repeat(3 * LINE)).unwrap();
        assert!(tail.new_lines().is_empty() && tail.part.is_empty());
        write!(file, "{}\nhello\n", "x".repeat(LINE)).unwrap();
        assert!(tail.new_lines().is_empty());
        assert!(tail.doubts().unwrap().starts_with("2 lines were written to the step log "));
        write!(file, "{step}\r\n").unwrap();
        assert_eq!((tail.new_lines(), tail.doubts()), (vec![step.to_owned()], None));
        tail.kept = KEPT;
        writeln!(file, "{step}").unwrap();
        assert!(tail.new_lines().is_empty());
        assert!(tail.doubts().unwrap().ends_with("256 MiB of steps during the run: 1 later steps are not kept"));
    }
}
