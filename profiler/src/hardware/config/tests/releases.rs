//! A small file of each release of a format, as its tool writes it, with the numbers that must be read from it.

use crate::hardware::config::{read, read_beside};
use crate::hardware::models::Attention;

macro_rules! file {
    ($name:literal) => {
        include_str!(concat!("releases/", $name))
    };
}

#[test]
fn mlx_files_of_both_releases_have_four_and_a_half_bits() {
    // mlx-lm wrote `quantization` alone at first; since December 2024 it writes `quantization_config` too.
    for text in [file!("mlx-2024.json"), file!("mlx-2025.json")] {
        let read = read(text, "m").unwrap();
        let b = read.shape.bits;
        assert_eq!((b.weights, b.dense, b.head, b.embedding, b.activations), (4.5, None, 4.5, None, 16.0));
        assert_eq!(read.warnings, Vec::<String>::new());
        // 4.3 GiB, with the embedding and the head.
        assert!((read.shape.work().weight_bytes / (1u64 << 30) as f64 - 4.29).abs() < 0.01);
    }
}

#[test]
fn mlx_gives_modules_bits_of_their_own() {
    let read = read(file!("mlx-mixed.json"), "m").unwrap();
    let b = read.shape.bits;
    // gpt-oss of mlx-lm: experts in MXFP4, the rest in 8 bits with groups of 64.
    assert_eq!((b.experts, b.weights, b.head), (4.25, 8.5, 8.5));
    let odd = file!("mlx-2025.json").replacen("\"bits\": 4", "\"bits\": 8", 1);
    let said = crate::hardware::config::read(&odd, "m").unwrap_err().to_string();
    assert!(said.starts_with("quantization: says something else than quantization_config"), "{said}");
}

#[test]
fn eagle_heads_of_speculators_are_as_flat_files() {
    let nested = read(file!("speculators-eagle3.json"), "m").unwrap();
    let flat = read(file!("eagle3-flat.json"), "m").unwrap();
    assert_eq!(nested, flat);
    assert!((nested.shape.parameters() / 0.826e9 - 1.0).abs() < 0.001, "{}", nested.shape.parameters());
    let [group] = nested.shape.layers.as_slice() else { panic!("{nested:?}") };
    assert!(matches!(group.attention, Attention::Grouped { input: Some(10_752), .. }));
    let other = file!("speculators-eagle3.json").replacen("\"eagle3\"", "\"medusa\"", 2);
    let other = other.replace("\"speculators_model_type\": \"eagle3\"", "\"speculators_model_type\": \"medusa\"");
    let said = crate::hardware::config::read(&other, "m").unwrap_err().to_string();
    assert!(said.contains("speculators_model_type: `medusa` is not modelled"), "{said}");
}

#[test]
fn a_truncated_vocabulary_is_the_heads() {
    let head = read(file!("eagle3-truncated.json"), "m").unwrap();
    assert_eq!((head.shape.vocab, head.warnings.len()), (64_000, 0));
    assert!((head.shape.parameters() / 0.350e9 - 1.0).abs() < 0.002, "{}", head.shape.parameters());
}

#[test]
fn the_second_file_of_modelopt_is_read() {
    let config = file!("modelopt/config.json");
    let quantised = read_beside(config, Some(file!("modelopt/hf_quant_config.json")), "m").unwrap();
    let b = quantised.shape.bits;
    assert_eq!((b.weights, b.activations, b.kv, b.head), (4.5, 4.0, 8.0, 16.0));
    assert_eq!(quantised.warnings, Vec::<String>::new());
    assert_eq!(read(config, "m").unwrap().shape.bits.weights, 16.0);
    let said = read_beside(config, Some("{}"), "m").unwrap_err().to_string();
    assert!(said.starts_with("hf_quant_config.json: quantization: missing"), "{said}");
    let said = read_beside(config, Some("{\n x"), "m").unwrap_err().to_string();
    assert!(said.starts_with("hf_quant_config.json: line 2: this is not JSON"), "{said}");
}

#[test]
fn glm_5_3_flash_has_its_published_size() {
    // 321 B with the MTP module and the vision tower, 18 B active. A module is one layer of attention and experts.
    let read = read(file!("glm5-next.json"), "m").unwrap();
    let module = read.mtp.as_ref().unwrap();
    let all = read.shape.parameters() + module.parameters() - module.head_parameters();
    assert!((all / 321e9 - 1.0).abs() < 0.01, "{all}");
    assert!((read.shape.active_parameters() / 17.4e9 - 1.0).abs() < 0.02, "{}", read.shape.active_parameters());
    let states = read.shape.layers.iter().filter(|g| matches!(g.attention, Attention::Recurrent { .. }));
    assert_eq!(states.map(|g| g.count).sum::<u32>(), 34);
    assert_eq!(read.warnings.len(), 1, "{:?}", read.warnings);
}
