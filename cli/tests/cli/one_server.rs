//! A calibration (costs and acceptance that `calibrate` fitted) describes one server. `validate` compares it only with
//! complete runs of this server and refuses other runs.

use crate::observe::{EXPERIMENT, speculating};
use crate::support::Place;
use foretoken_tests::stub::{Completion, Reply, Stub, aside};
use serde_json::json;
use std::io::Write;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

/// A server with this model and version. It drafts `k` tokens, three or none, and logs its steps.
fn server(place: &Place, model: &'static str, version: &'static str, k: u64) -> Stub {
    let file = std::fs::File::options().create(true).append(true).open(place.path("server.log")).unwrap();
    let state = Mutex::new((file, 0u64));
    Stub::start(move |r| match r.path.as_str() {
        "/v1/models" => Reply::Text(200, vec![], json!({ "data": [{ "id": model }] }).to_string()),
        "/version" => Reply::Text(200, vec![], json!({ "version": version }).to_string()),
        "/v1/completions" => {
            let mut state = state.lock().unwrap();
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
            for step in 0..if k == 0 { 8 } else { 3 } {
                state.1 += 1;
                let (prompts, tokens, decodes) = if step == 0 { (1, 12, 0) } else { (0, 0, 1) };
                let line = format!(
                    "{:.6} INFO x Iteration({}): {prompts} context requests, {tokens} context tokens, {decodes} generation \
                     requests, {} generation tokens, iteration elapsed time: {}.00 ms, CPU KV cache usage: 0.1%\n",
                    now + 1e-5 * step as f64,
                    state.1,
                    decodes * (k + 1),
                    1 + k
                );
                state.0.write_all(line.as_bytes()).unwrap();
            }
            if k == 0 { Completion::of(r).reply(r) } else { speculating(r).reply(r) }
        }
        _ => aside(r, "").unwrap_or(Reply::Close),
    })
}

/// Observes a server with these properties into the folder `out`.
fn seen(place: &Place, out: &str, model: &'static str, version: &'static str, k: u64, more: &[&str]) {
    let stub = server(place, model, version, k);
    let policy = if k == 0 { "policies=[{ autoregressive = {} }]" } else { "policies=[{ fixed = { k = 3 } }]" };
    let url = stub.url("127.0.0.1");
    let mut command = place.foretoken();
    command.args(["observe", &url, "x.toml", "-o", out, "--step-log", "server.log", "--set", policy]).args(more);
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Calibrates the runs into the folder `cal` and returns stderr. On a busy machine the verdict may be "not trusted"
/// (exit code 3). This is accepted, because accuracy is not tested here.
fn calibrated(place: &Place, runs: &[&str]) -> String {
    let out = place.foretoken().arg("calibrate").args(runs).args(["-o", "cal"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(matches!(out.status.code(), Some(0 | 3)) && stderr.contains("to simulate it: "), "{stderr}");
    stderr
}

#[test]
fn runs_of_two_servers_are_not_calibrated_together() {
    let place = Place::holding(EXPERIMENT);
    seen(&place, "k0", "tiny", "0.32.0", 0, &[]);
    seen(&place, "model", "another-model", "0.32.0", 3, &[]);
    seen(&place, "release", "tiny", "0.33.0", 3, &[]);
    seen(&place, "settings", "tiny", "0.32.0", 3, &["--set", "engine.max_num_seqs=8"]);
    for (other, said) in [
        ("model", "are of two servers: the model is `tiny` and `another-model`"),
        ("release", "are of two servers: the release is 0.32 and 0.33"),
        ("settings", "are of two servers: max_num_seqs is 256 and 8"),
    ] {
        let stderr = place.fails(&["calibrate", "k0", other, "-o", "cal"], 2);
        let files = format!("k0/recordings/v0-s0.obs and {other}/recordings/v0-s0.obs");
        for said in [said, files.as_str()] {
            assert!(stderr.replace("\n  |", "").contains(said), "{said}: {stderr}");
        }
        assert!(!place.path("cal").exists());
    }
}

#[test]
fn the_calibrated_experiment_notes_the_servers_release() {
    for (version, taken, said) in [
        (
            "0.33.0",
            "vllm-0.33",
            "takes engine.version = \"vllm-0.33\" in place of vllm-0.32: the server says that it is 0.33.0",
        ),
        ("0.41.0", "vllm-0.32", "it is 0.41.0, whose rules Foretoken does not know"),
    ] {
        let place = Place::holding(EXPERIMENT);
        seen(&place, "k3", "tiny", version, 3, &["--set", "engine.version=vllm-0.32"]);
        let stderr = calibrated(&place, &["k3"]);
        assert!(stderr.contains(said), "{said}: {stderr}");
        let experiment = std::fs::read_to_string(place.path("cal/experiment.toml")).unwrap();
        assert!(experiment.contains(&format!("# engine.version is \"{taken}\": ")), "{experiment}");
        assert!(experiment.contains(&format!("version = \"{taken}\"")), "{experiment}");
    }
}

#[test]
fn validation_refuses_other_servers_and_partial_runs() {
    let place = Place::holding(EXPERIMENT);
    seen(&place, "k0", "tiny", "0.32.0", 0, &[]);
    seen(&place, "k3", "tiny", "0.32.0", 3, &[]);
    seen(&place, "model", "another-model", "0.32.0", 3, &[]);
    seen(&place, "release", "tiny", "0.33.0", 3, &[]);
    calibrated(&place, &["k0", "k3"]);
    let whole = std::fs::read(place.path("k3/recordings/v0-s0.obs")).unwrap();
    std::fs::write(place.path("cut.obs"), &whole[..whole.len() * 3 / 4]).unwrap();
    for (other, said) in [
        ("model", "is of model `another-model`, and the calibration is of `tiny`"),
        ("release", "is of release 0.33.0, and the calibration is of 0.32.0"),
        ("cut.obs", "cut.obs is a part of a run: it breaks off after"),
    ] {
        let stderr = place.fails(&["validate", "--calibrated", "cal", "--observed", other], 2);
        assert!(stderr.replace("\n  |", "").contains(said), "{said}: {stderr}");
    }
}
