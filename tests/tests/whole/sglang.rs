//! Our engine with SGLang's scheduler makes every batch that SGLang 0.5.23 itself made.

use foretoken_tests::sglang::replay_all;
use std::io::BufReader;

#[test]
fn every_batch_is_sglangs() {
    let text = zstd::Decoder::new(&include_bytes!("../../sglang/sglang-0.5.23.jsonl.zst")[..]).unwrap();
    for (family, counts) in replay_all(BufReader::new(text)).unwrap() {
        assert!(counts.differ == 0 && counts.equal > 0, "{family} {counts}: {:?}", counts.first);
    }
}
