//! Measures how late the server's tokens reach a client, and compares this with a bare echo server in the same run.
//!
//!     cargo bench -p foretoken-servers --features observe --bench lateness
//!
//! The simulated server and the echo server run on one core, and the client on another (`taskset`). First 10, then 30,
//! then 100 requests a second come, each rate for 12 seconds. An answer is streamed for about 5 seconds, so up to 50,
//! 150 and 500 streams are open. The lateness of a chunk is the time from the end of its step (`return_due`) until the
//! client has read the chunk.
//!
//! After each rate, the client opens the same number of connections (50, 150 or 500) to the echo server, and writes a
//! line to each connection every 83 ms, the time of a server's step with 500 streams. The lateness of a line is the
//! time from when the client writes the line until the client has read it back.

use foretoken_servers::serve::{Settings, serve};
use foretoken_sim::acceptance::{AcceptanceSpec, Rates};
use foretoken_sim::{
    Arrivals, BatchView, Coefficients, ContextReads, DraftLimits, DraftPlan, Drafting, EngineConfig, Linear, Request,
    Simulation, SpecPolicy, Speculation, Time, Workload,
};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

const PER_S: [u64; 3] = [10, 30, 100];
const SECONDS: u64 = 12;
/// How long the stream of one answer lasts, seconds.
const ANSWER_S: u64 = 5;
const STREAMS: u64 = 500;
const TOKENS: u32 = 150;
/// How long a step of the server takes if all 500 streams are in its batch.
const STEP: Duration = Duration::from_millis(83);
const PORTS: [u16; 2] = [8511, 8512];

fn main() {
    match std::env::var("LATENESS_AS").as_deref() {
        Ok("server") => server(),
        Ok("echo") => echo(),
        Ok("client") => client(),
        _ => {
            let mut others = [part("server", 0), part("echo", 0)];
            std::thread::sleep(Duration::from_millis(500));
            let _ = part("client", 1).wait();
            others.iter_mut().for_each(|child| {
                let _ = child.kill();
                let _ = child.wait();
            });
        }
    }
}

/// Starts this benchmark as another process with the given role (`server`, `echo` or `client`) on one core.
fn part(role: &str, core: usize) -> Child {
    let this = std::env::current_exe().expect("a path");
    let mut command = Command::new("taskset");
    command.args(["-c", &core.to_string()]).arg(this).env("LATENESS_AS", role).stderr(Stdio::inherit());
    command.spawn().expect("taskset, of util-linux, is installed")
}

struct Three;

impl SpecPolicy for Three {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(3).as_in_vllm(&[])
    }

    fn propose(&mut self, _: &BatchView, plan: &mut DraftPlan) {
        plan.fill(3);
    }
}

fn server() {
    let config = EngineConfig {
        max_num_seqs: 1024,
        max_num_batched_tokens: 8192,
        num_gpu_blocks: 1 << 20,
        max_model_len: 4096,
        ..EngineConfig::default()
    };
    let workload: Workload = [Request::new(Time::ZERO, 16, TOKENS)].into_iter().collect();
    let acceptance = AcceptanceSpec { source: Rates::Constant { rate: 0.7 }, ..AcceptanceSpec::default() };
    let acceptance = acceptance.build(1, &workload).expect("good settings");
    let per_token = STEP.as_secs_f64() / 2.0 / (4 * STREAMS) as f64;
    let target = Linear::new(Coefficients { alpha_s: 0.0, gamma_s: per_token, delta_s: STEP.as_secs_f64() / 2.0 });
    let draft = Linear::new(Coefficients { alpha_s: 0.0, gamma_s: 0.0, delta_s: 1e-4 });
    let never = AtomicBool::new(false);
    let simulation = Simulation {
        workload: &workload,
        arrivals: Arrivals::Open,
        config: &config,
        draft: &draft,
        target: &target,
        context_reads: ContextReads::Once,
        drafting: Drafting::Autoregressive,
        noise_cv: 0.0,
        acceptance: &*acceptance,
        seed: 1,
        slo_tpot_s: f64::INFINITY,
        keep_steps: false,
        keep_lives: false,
        interrupt: &never,
    };
    let settings = Settings {
        address: ([127, 0, 0, 1], PORTS[0]).into(),
        model: "bench".into(),
        max_waiting: 4096,
        bytes_per_token: 1,
        tokenizer: None,
        step_log: None,
    };
    let mut engine = simulation.online(Speculation::Policy(Box::new(Three)));
    serve(&mut *engine, &config, &workload, &settings, &never, |_| {}).expect("it serves until it is killed");
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn echo() {
    runtime().block_on(async {
        let listener = TcpListener::bind(("127.0.0.1", PORTS[1])).await.expect("a free port");
        loop {
            let (mut connection, _) = listener.accept().await.expect("a connection");
            tokio::spawn(async move {
                connection.set_nodelay(true).expect("a socket");
                let mut bytes = [0; 4096];
                while let Ok(n @ 1..) = connection.read(&mut bytes).await {
                    connection.write_all(&bytes[..n]).await.expect("the client reads");
                }
            });
        }
    });
}

fn client() {
    for per_s in PER_S {
        let late = runtime().block_on(streams(per_s));
        say(&format!("{per_s} requests/s, streamed"), late);
        let connections = per_s * ANSWER_S;
        say(&format!("{connections} connections, bare echo"), runtime().block_on(echoes(connections)));
    }
}

fn say(what: &str, mut late_s: Vec<f64>) {
    late_s.sort_by(f64::total_cmp);
    let quantile_ms = |q: f64| 1e3 * late_s[((late_s.len() - 1) as f64 * q) as usize];
    println!(
        "{what}: {} lines, late {:.2} ms at p50, {:.2} at p90, {:.2} at p99",
        late_s.len(),
        quantile_ms(0.5),
        quantile_ms(0.9),
        quantile_ms(0.99)
    );
}

fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64()
}

/// Sends `per_s` requests a second to the server for [`SECONDS`] seconds. The answer to each request is streamed.
/// Returns the lateness of each chunk in seconds: the time from the end of its step until the client had read the
/// chunk.
async fn streams(per_s: u64) -> Vec<f64> {
    let begun = Instant::now();
    let asked = (0..per_s * SECONDS).map(|n| {
        tokio::spawn(async move {
            let at = begun + Duration::from_secs_f64(n as f64 / per_s as f64);
            tokio::time::sleep_until(at.into()).await;
            stream().await
        })
    });
    let asked: Vec<_> = asked.collect();
    let mut late = Vec::new();
    for stream in asked {
        late.extend(stream.await.expect("the server answers"));
    }
    late
}

async fn stream() -> Vec<f64> {
    let mut connection = TcpStream::connect(("127.0.0.1", PORTS[0])).await.expect("the server listens");
    let body = format!(
        "{{\"prompt\": [1, 2, 3, 4], \"max_tokens\": {TOKENS}, \"ignore_eos\": true, \"stream\": true, \"return_due\": true}}"
    );
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    connection.write_all((head + &body).as_bytes()).await.expect("the server reads");
    let (mut lines, mut line, mut late) = (BufReader::new(connection), String::new(), Vec::new());
    while lines.read_line(&mut line).await.expect("the server writes") > 0 {
        if let Some((_, rest)) = line.split_once("\"due_unix_s\":") {
            let due: f64 = rest.split(['}', ',']).next().and_then(|s| s.parse().ok()).expect("a number");
            late.push(unix_s() - due);
        }
        line.clear();
    }
    late
}

/// For five seconds, sends a line to the echo server on each connection every [`STEP`]. Returns the lateness of each
/// line in seconds: the time from writing the line until the client had read it back.
async fn echoes(connections: u64) -> Vec<f64> {
    let begun = Instant::now() + Duration::from_secs(1);
    let bursts = (Duration::from_secs(5).as_secs_f64() / STEP.as_secs_f64()) as u32;
    let connections = (0..connections).map(|_| {
        tokio::spawn(async move {
            let mut connection = TcpStream::connect(("127.0.0.1", PORTS[1])).await.expect("the server listens");
            connection.set_nodelay(true).expect("a socket");
            let line = "x".repeat(230) + "\n";
            let (mut back, mut late) = (vec![0; line.len()], Vec::new());
            for burst in 0..bursts {
                let due = begun + burst * STEP;
                tokio::time::sleep_until(due.into()).await;
                let sent = Instant::now();
                connection.write_all(line.as_bytes()).await.expect("the server reads");
                connection.read_exact(&mut back).await.expect("the server writes");
                late.push(sent.elapsed().as_secs_f64());
            }
            late
        })
    });
    let connections: Vec<_> = connections.collect();
    let mut late = Vec::new();
    for connection in connections {
        late.extend(connection.await.expect("the server echoes"));
    }
    late
}
