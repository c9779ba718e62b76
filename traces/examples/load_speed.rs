//! Measures how fast a trace of BurstGPT's size is generated, and how fast a second process reads it from a file:
//! `cargo run --release --example load_speed`.
//!
//! Prints seconds, rows a second and the peak memory of each process. The writing of the file is not timed.

use foretoken_sim::Workload;
use foretoken_traces::{TraceSpec, WorkloadSpec, build, read};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

const ROWS: u32 = 1_429_737;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // If the program is started with a FILE, it only reads this file, so its peak memory is caused by reading alone.
    if let Some(path) = std::env::args().nth(1) {
        return Ok(time_read(Path::new(&path))?);
    }
    let spec: WorkloadSpec = serde_json::from_str(&format!(
        r#"{{ "arrivals": {{ "burstgpt": {{}} }}, "lengths": {{ "table": "burstgpt" }}, "requests": {ROWS} }}"#
    ))?;
    let start = Instant::now();
    let workload = build(&spec, 1, None)?.workload;
    report("generate", start, workload.len());
    let path = std::env::temp_dir().join("foretoken-load-speed.csv");
    write_csv(&workload, &path)?;
    drop(workload);
    let this = std::env::current_exe()?;
    std::process::Command::new(this).arg(&path).status()?;
    Ok(std::fs::remove_file(path)?)
}

fn time_read(path: &Path) -> Result<(), foretoken_traces::TraceError> {
    let start = Instant::now();
    let trace = read(&TraceSpec::new(path), None)?;
    report("read", start, trace.workload.len());
    Ok(())
}

fn write_csv(w: &Workload, path: &Path) -> std::io::Result<()> {
    let mut out = std::io::BufWriter::new(std::fs::File::create(path)?);
    out.write_all(b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\r\n")?;
    let mut line = String::new();
    for i in 0..w.len() {
        let (at, p, o) = (w.arrival[i].as_s().floor(), w.prompt_len[i], w.output_len[i]);
        line.clear();
        let _ = write!(line, "{at},ChatGPT,{p},{o},{},Conversation log\r\n", p + o);
        out.write_all(line.as_bytes())?;
    }
    out.flush()
}

fn report(what: &str, start: Instant, rows: usize) {
    let seconds = start.elapsed().as_secs_f64();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or("unknown").trim();
    println!("{what}: {rows} rows in {seconds:.3} s, {:.2} M rows/s, peak memory {peak}", rows as f64 / seconds / 1e6);
}
