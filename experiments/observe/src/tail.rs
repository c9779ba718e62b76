//! The server's step log, as far as it grows while a run lasts.

use foretoken_observed::step_log::is_step;
use foretoken_spec::problem::{Problem, Result};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// A log that is read from where it ended when the run began.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    file: File,
    at: u64,
    /// The beginning of a line whose end is not written yet.
    part: Vec<u8>,
}

impl Tail {
    /// At the end of the log.
    pub fn open(path: &Path) -> Result<Tail> {
        let bad = |e: std::io::Error| {
            Problem::bad_input(format!("--step-log {}: {e}", path.display())).help(
                "name the file that the server's output goes to; it must run with --enable-logging-iteration-details",
            )
        };
        let mut file = File::open(path).map_err(bad)?;
        let at = file.seek(SeekFrom::End(0)).map_err(bad)?;
        Ok(Tail { path: path.to_path_buf(), file, at, part: Vec::new() })
    }

    /// The lines of steps that are new. A log that was cut or begun again is read from its start.
    pub fn new_lines(&mut self) -> Vec<String> {
        if std::fs::metadata(&self.path).is_ok_and(|m| m.len() < self.at)
            && let Ok(file) = File::open(&self.path)
        {
            (self.file, self.at) = (file, 0);
            self.part.clear();
        }
        let mut new = Vec::new();
        // What cannot be read now is read the next time.
        if self.file.seek(SeekFrom::Start(self.at)).and_then(|_| self.file.read_to_end(&mut new)).is_err() {
            return Vec::new();
        }
        self.at += new.len() as u64;
        self.part.extend(new);
        let Some(end) = self.part.iter().rposition(|&b| b == b'\n') else { return Vec::new() };
        let rest = self.part.split_off(end + 1);
        let whole = std::mem::replace(&mut self.part, rest);
        String::from_utf8_lossy(&whole).lines().filter(|line| is_step(line)).map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_grows_is_read_line_by_line() {
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
}
