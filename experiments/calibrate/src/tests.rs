//! A server that keeps to a known law is calibrated, and predicted where nobody looked.

use crate::against::compare;
use crate::calibration::Calibration;
use crate::kept::Kept;
use crate::predict::{AcceptanceFrom, World};
use crate::source::{Source, open_all};
use crate::synthetic::{LAW, Law};
use std::path::Path;

fn calibrated(folder: &Path, lengths: &[u32], law: &Law) -> (Calibration, Vec<Source>) {
    let paths: Vec<_> = lengths.iter().flat_map(|&k| [1, 4, 8].map(|c| law.write(folder, k, c, 1))).collect();
    (Calibration::of(open_all(&paths).unwrap(), vec![]).unwrap(), open_all(&paths).unwrap())
}

#[test]
fn the_law_is_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let (c, _) = calibrated(dir.path(), &[0, 3], &LAW);
    let fit = c.cost.as_ref().unwrap();
    // Lines of the log have hundredths of a millisecond.
    assert!((fit.host_s - LAW.host_s).abs() < 5e-5, "{fit:?}");
    assert!((fit.draft.delta_s - LAW.draft_s).abs() < 2e-4, "{fit:?}");
    assert!(c.separated && c.held_out.by_time.mean_absolute < 5e-3, "{:?}", c.held_out);
    let positions = &c.acceptance.as_ref().unwrap().positions;
    for p in &positions[..3] {
        assert!(!p.extrapolated && (p.rate - LAW.rate).abs() < 0.05, "{p:?}");
    }
    assert!(positions[3].extrapolated && positions[3].reached == 0);
    assert_eq!(c.warnings, Vec::<String>::new());
}

#[test]
fn a_length_that_nobody_saw_is_predicted_and_fitted_runs_are_told_apart() {
    let (dir, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (c, fitted) = calibrated(dir.path(), &[0, 3], &LAW);
    c.write(&to.path().join("cal"), false).unwrap();
    let kept = Kept::read(&to.path().join("cal")).unwrap();
    let held = [2, 5].into_iter().flat_map(|k| [11, 12].map(|seed| LAW.write(dir.path(), k, 4, seed)));
    let mut runs = open_all(&held.collect::<Vec<_>>()).unwrap();
    runs.push(Source::open(&dir.path().join("k3-c4-s1.obs")).unwrap());
    let against = compare(&kept, &runs, &fitted).unwrap();
    assert_eq!(against.cells.iter().map(|c| (c.k, c.fitted)).collect::<Vec<_>>(), [(2, false), (3, true), (5, false)]);
    for cell in &against.cells {
        for metric in ["throughput", "tpot mean", "e2e mean"] {
            let row = cell.row(metric).unwrap();
            assert!(row.error.abs() < 0.05, "K = {}: {row:?}", cell.k);
            let parts = row.of_acceptance + row.of_cost + row.of_schedule;
            assert!((parts - row.error).abs() < 1e-9, "the parts make up the error");
        }
    }
    assert!(against.warnings.iter().any(|w| w.contains("beyond position 3")), "{:?}", against.warnings);
    let text = against.in_words();
    assert!(text.contains("held out: 2 cells"), "{text}");
}

#[test]
fn what_the_data_cannot_tell_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let (c, _) = calibrated(dir.path(), &[3], &LAW);
    assert!(!c.separated);
    assert!(c.warnings.iter().any(|w| w.contains("cannot be separated at one K")), "{:?}", c.warnings);
    let one = open_all(&[LAW.write(dir.path(), 0, 1, 2)]).unwrap();
    let c = Calibration::of(one, vec![]).unwrap();
    for said in ["nothing was drafted", "one or two sizes only", "acceptance is not known"] {
        assert!(c.warnings.iter().any(|w| w.contains(said)), "{said}: {:?}", c.warnings);
    }
    let never = Law { rate: 0.0, ..LAW };
    let c = Calibration::of(open_all(&[never.write(dir.path(), 2, 4, 3)]).unwrap(), vec![]).unwrap();
    assert!(c.warnings.iter().any(|w| w.contains("not one drafted token was ever accepted")), "{:?}", c.warnings);
    let waiting = Law { host_s: 50e-3, ..LAW };
    let c = Calibration::of(open_all(&[waiting.write(dir.path(), 1, 4, 4)]).unwrap(), vec![]).unwrap();
    assert!(c.warnings.iter().any(|w| w.contains("--no-async-scheduling")), "{:?}", c.warnings);
}

#[test]
fn the_same_run_twice_and_what_is_no_recording_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = LAW.write(dir.path(), 1, 2, 1);
    let said = |paths: &[_]| open_all(paths).unwrap_err().message().to_owned();
    assert!(said(&[path.clone(), path.clone()]).contains("are the same recording"));
    assert!(said(&[dir.path().join("none")]).contains("no such file or folder"));
    assert!(said(&[dir.path().to_path_buf()]).contains("it holds no recordings"));
    std::fs::write(dir.path().join("x.obs"), "hello there, this is text").unwrap();
    assert!(said(&[dir.path().join("x.obs")]).contains("is no recording"));
}

#[test]
fn a_calibration_that_was_edited_is_not_believed() {
    let (dir, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (c, _) = calibrated(dir.path(), &[0, 3], &LAW);
    let folder = to.path().join("cal");
    c.write(&folder, false).unwrap();
    assert!(c.write(&folder, false).unwrap_err().message().contains("holds a calibration"));
    c.write(&folder, true).unwrap();
    let kept = Kept::read(&folder).unwrap();
    assert_eq!(kept.inputs, c.inputs());
    let path = folder.join("calibration.json");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"separated\": true", "\"separated\": false")).unwrap();
    assert!(Kept::read(&folder).unwrap_err().message().contains("damaged or was changed"));
}

/// Two servers that differ in everything but what they were asked: what is predicted of their runs is the same.
#[test]
fn a_prediction_reads_what_was_asked_and_nothing_else() {
    let (dir, to, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (c, _) = calibrated(dir.path(), &[0, 3], &LAW);
    c.write(&to.path().join("cal"), false).unwrap();
    let kept = Kept::read(&to.path().join("cal")).unwrap();
    let table = AcceptanceFrom::Table(kept.table.as_ref().unwrap());
    let world = World { cost: &kept.cost, acceptance: table, engine: &kept.engine, seed: 1 };
    let slow = Law { target_s: 30e-3, token_s: 1e-3, draft_s: 9e-3, host_s: 5e-3, rate: 0.2 };
    let [a, b] = [LAW.write(dir.path(), 2, 4, 9), slow.write(other.path(), 2, 4, 9)].map(|p| Source::open(&p).unwrap());
    assert_ne!(a.run.run.records.finish, b.run.run.records.finish);
    let [a, b] = [a, b].map(|source| world.serve(&source, 2).unwrap().records);
    assert_eq!(a, b);
}
