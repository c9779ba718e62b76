//! If two commands use one folder at once, the second fails with an error and the first goes on undisturbed.

use crate::interrupted::{long, resumes_to_the_same_bytes, start};

#[test]
fn a_folder_in_which_a_command_is_at_work_is_refused() {
    let place = long();
    let mut first = start(&place);
    for more in [&[][..], &["--resume"], &["--overwrite"], &["--resume", "--shard", "1/2"]] {
        let said = place.fails(&[&["run", "x.toml", "-o", "out"], more].concat(), 2);
        assert!(said.contains("another command is at work in out") && said.contains("wait until it ends"), "{said}");
    }
    assert!(first.try_wait().unwrap().is_none(), "the first is still at work");
    first.kill().unwrap();
    first.wait().unwrap();
    // The killed process held a lock on the results folder. The lock ended with the process, so a new run can resume.
    resumes_to_the_same_bytes(&place);
}

#[test]
fn a_calibration_that_was_killed_is_made_again() {
    let place = crate::support::Place::new();
    let runs: Vec<String> =
        [0, 3].map(|k| format!("{}/../servers/fixtures/vllm-0.32-k{k}.obs", env!("CARGO_MANIFEST_DIR"))).into();
    let calibrate = |more: &[&str]| {
        let out = place.foretoken().arg("calibrate").args(&runs).args(["-o", "cal"]).args(more).output().unwrap();
        (out.status.code(), String::from_utf8_lossy(&out.stderr).split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let (code, said) = calibrate(&[]);
    assert_eq!(code, Some(0), "{said}");
    let whole = crate::support::bytes_of(&place.path("cal"));
    // Makes the folder `cal` look as if `calibrate` was killed just after its start.
    std::fs::remove_dir_all(place.path("cal")).unwrap();
    std::fs::create_dir(place.path("cal")).unwrap();
    std::fs::write(place.path("cal/calibration.json.partial"), "{").unwrap();
    assert_eq!(calibrate(&[]).0, Some(0));
    // Makes the folder `cal` look as if `calibrate` was killed halfway.
    std::fs::write(
        place.path("cal/calibration.json"),
        "{ \"unfinished\": \"the command that wrote this folder did not end\" }\n",
    )
    .unwrap();
    let said = place.fails(&["recommend", "cal", "-o", "advice"], 2);
    assert!(said.contains("the calibration did not end") && said.contains("--overwrite"), "{said}");
    let (code, said) = calibrate(&[]);
    assert!(code == Some(2) && said.contains("holds a calibration that was not finished"), "{said}");
    assert_eq!(calibrate(&["--overwrite"]).0, Some(0));
    assert!(crate::support::bytes_of(&place.path("cal")) == whole);
}
