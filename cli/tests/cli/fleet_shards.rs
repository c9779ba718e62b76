//! `foretoken fleet` in shards: in any order, at once, killed. The merged shards must equal a search on one machine.

use crate::support::{Place, bytes_of};
use std::process::{Command, Output, Stdio};

const EXPERIMENT: &str = r#"
name = "many"
seeds = [1, 2]
policies = [{ autoregressive = {} }, { fixed = { k = 3 } }]

[hardware]
target = { linear = { alpha_s = 1e-7, gamma_s = 2e-4, delta_s = 0.02 } }
draft = { linear = { alpha_s = 1e-8, gamma_s = 1e-5, delta_s = 0.002 } }

[engine]
num_gpu_blocks = 4000
max_num_seqs = 16

[fleet]
router = { sweep = ["round-robin", "vllm-dp"] }
price_gpu_hour = 2.0

[workload]
arrivals = { poisson = { rate = 30.0 } }
lengths = { fixed = { prompt = 64, output = 32 } }
requests = 300

[acceptance.source]
constant = { rate = 0.7 }

[slo]
ttft_s = 0.3
tpot_s = 0.05

[capacity]
share = 0.95
requests = 200
warm_up_requests = 20
tolerance = 0.05
"#;

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Makes the searches of shard `which` of `x.toml` (for the fewest replicas) in the folder `to`; they must succeed.
fn shard(place: &Place, to: &str, which: &str, more: &[&str]) {
    let output = place.foretoken().args(["fleet", "x.toml", "-o", to, "--shard", which]).args(more).output().unwrap();
    assert!(output.status.success(), "{which}: {}", stderr(&output));
    assert!(output.stdout.is_empty(), "a shard is no result");
}

/// Merges the shards in the folder `from`. The merged folder must equal the folder `whole` of a search on one machine.
fn merges_to_the_whole(place: &Place, from: &str) {
    let output = place.foretoken().args(["merge", from]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(output.stdout, std::fs::read(place.path("whole/fleet.txt")).unwrap());
    let (parted, whole) = (bytes_of(&place.path(from)), bytes_of(&place.path("whole")));
    assert_eq!(parted.keys().collect::<Vec<_>>(), whole.keys().collect::<Vec<_>>());
    for (name, bytes) in &parted {
        assert!(bytes == &whole[name], "{name} differs");
    }
}

#[test]
fn merged_shards_equal_a_search_on_one_machine() {
    let place = Place::holding(EXPERIMENT);
    let whole = place.foretoken().args(["fleet", "x.toml", "-o", "whole"]).output().unwrap();
    assert!(whole.status.success(), "{}", stderr(&whole));

    shard(&place, "turns", "2/2", &[]);
    let said = place.fails(&["merge", "turns"], 1);
    assert!(said.contains("4 of 8 cells are not finished") && said.contains("4 (not begun)"), "{said}");
    let command = "  foretoken fleet turns/shards/experiment.toml -o turns --shard 1/2 --resume\n";
    assert!(said.contains(command), "{said}");
    shard(&place, "turns", "1/2", &[]);
    merges_to_the_whole(&place, "turns");
    // A second merge changes nothing, and neither does a shard that is run again after the merge.
    merges_to_the_whole(&place, "turns");
    shard(&place, "turns", "1/2", &["--resume"]);
    merges_to_the_whole(&place, "turns");

    // All five shards begin at once, in a folder that does not exist yet. There are fewer searches than shards, so one
    // shard has nothing to search. Shard 1/5 is killed.
    let children: Vec<_> = (1..=5)
        .map(|i| {
            let which = format!("{i}/5");
            let mut command = Command::new(env!("CARGO_BIN_EXE_foretoken"));
            command.args(["fleet", "x.toml", "-o", "once", "--threads", "1", "--shard", &which]);
            command.current_dir(place.path("")).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for (i, mut child) in children.into_iter().enumerate() {
        if i == 0 {
            let _ = child.kill();
            child.wait().unwrap();
        } else {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", stderr(&output));
        }
    }
    shard(&place, "once", "1/5", &["--resume"]);
    let listed = place.foretoken().args(["merge", "once", "--list"]).output().unwrap();
    assert!(listed.status.success() && String::from_utf8_lossy(&listed.stdout).contains("5/5"), "{listed:?}");
    merges_to_the_whole(&place, "once");
}

#[test]
fn folders_of_other_shards_are_refused() {
    let place = Place::holding(&EXPERIMENT.replace("{ sweep = [\"round-robin\", \"vllm-dp\"] }", "\"random\""));
    shard(&place, "searched", "1/2", &[]);
    for (args, what) in [
        (&["fleet", "x.toml", "-o", "searched", "--shard", "1/3"][..], "holds shards of 2, and this is one of 3"),
        (&["fleet", "x.toml", "-o", "searched", "--shard", "3/2"], "there are 2 shards"),
        (&["fleet", "x.toml", "-o", "searched", "--shard", "2/2", "--set", "seeds=[9]"], "another experiment"),
        (&["fleet", "x.toml", "-o", "searched", "--shard", "2/2", "--overwrite"], "cannot be used with"),
        (&["run", "x.toml", "-o", "searched", "--shard", "2/2"], "a search for the fewest replicas"),
    ] {
        let said = place.fails(args, 2);
        assert!(said.contains(what), "{args:?}: {said}");
    }
    let run = ["run", "x.toml", "-o", "ran", "--shard", "1/2", "--set", "workload.requests=40"];
    let output = place.foretoken().args(run).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let said = place.fails(
        &["fleet", "x.toml", "-o", "ran", "--shard", "2/2", "--set", "workload.requests=40", "--set", "capacity={}"],
        2,
    );
    assert!(said.contains("another experiment") || said.contains("shards of `foretoken run`"), "{said}");
}
