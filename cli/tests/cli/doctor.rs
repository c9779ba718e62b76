//! `foretoken doctor`: its report, and the exit code for a device that `--need` names.

use crate::support::Place;

#[test]
fn doctor_reports_devices_and_fails_without_the_needed_one() {
    let place = Place::new();
    let output = place.foretoken().args(["doctor", "--format", "json"]).output().unwrap();
    assert!(output.status.success());
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(json["cpu"]["cores"].as_u64().unwrap() >= 1);
    assert_eq!(json["can"]["simulate"], true);
    let text = String::from_utf8(place.foretoken().arg("doctor").output().unwrap().stdout).unwrap();
    assert!(text.contains("CPU") && text.contains("Live on a GPU"), "{text}");

    assert!(place.foretoken().args(["doctor", "--need", "cpu"]).output().unwrap().status.success());
    // On a machine with GPUs, GPU 0 exists and GPU 999 does not.
    let any = place.foretoken().args(["doctor", "--need", "cuda"]).output().unwrap();
    let expected = if json["can"]["live_on_gpu"] == true { 0 } else { 4 };
    assert_eq!(any.status.code(), Some(expected));
    // The report is printed even if the device that `--need` names is missing.
    let far = place.foretoken().args(["doctor", "--need", "cuda:999"]).output().unwrap();
    let error = String::from_utf8(far.stderr).unwrap();
    assert_eq!(far.status.code(), Some(4), "{error}");
    assert!(error.contains("cannot run models on `cuda:999`") && !far.stdout.is_empty(), "{error}");
    let error = place.fails(&["doctor", "--need", "gpu"], 2);
    assert!(error.contains("`gpu` is not a device") && error.contains("cuda:N"), "{error}");
}
