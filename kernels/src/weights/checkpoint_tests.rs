use super::*;
use crate::weights::TensorSpec;
use safetensors::tensor::TensorView;
use serde_json::json;

fn shape() -> LlamaShape {
    LlamaShape { layers: 2, hidden: 8, intermediate: 12, vocab: 10, ..crate::model::preset("vicuna-68m").unwrap() }
}

/// Writes a safetensors file with the tensors `tensors`. Every byte of a tensor is `fill(name)`.
fn write(file: &Path, tensors: &[TensorSpec], dtype: safetensors::Dtype, fill: impl Fn(&str) -> u8) {
    let data: Vec<Vec<u8>> = tensors.iter().map(|t| vec![fill(&t.name); t.len() * dtype.bitsize() / 8]).collect();
    let views = tensors.iter().zip(&data).map(|(t, d)| (&t.name, TensorView::new(dtype, t.shape.clone(), d).unwrap()));
    safetensors::serialize_to_file(views, None, file).unwrap();
}

fn open_error(folder: &Path) -> String {
    Checkpoint::open(folder, &shape()).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn one_file_and_shards_give_the_same_tensors() {
    let all = tensors(&shape());
    let fill = |name: &str| name.bytes().fold(0u8, |a, b| a.wrapping_mul(31).wrapping_add(b));
    let (single, sharded) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(&single.path().join("model.safetensors"), &all, safetensors::Dtype::BF16, fill);
    let (a, b) = all.split_at(7);
    write(&sharded.path().join("a.safetensors"), a, safetensors::Dtype::BF16, fill);
    write(&sharded.path().join("b.safetensors"), b, safetensors::Dtype::BF16, fill);
    let map: serde_json::Map<_, _> = all
        .iter()
        .enumerate()
        .map(|(i, t)| (t.name.clone(), json!(if i < 7 { "a.safetensors" } else { "b.safetensors" })))
        .collect();
    std::fs::write(sharded.path().join("model.safetensors.index.json"), json!({ "weight_map": map }).to_string())
        .unwrap();
    for folder in [single, sharded] {
        let checkpoint = Checkpoint::open(folder.path(), &shape()).unwrap();
        assert_eq!(checkpoint.dtype(), Dtype::Bf16);
        for t in &all {
            let TensorData::Stored { dtype: Dtype::Bf16, bytes } = checkpoint.tensor(&t.name) else { panic!() };
            assert!(bytes.len() == 2 * t.len() && bytes.iter().all(|&x| x == fill(&t.name)), "{}", t.name);
        }
    }
}

#[test]
fn half_precision_is_kept_as_f32() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("model.safetensors"), &tensors(&shape()), safetensors::Dtype::F16, |_| 0);
    assert_eq!(Checkpoint::open(folder.path(), &shape()).unwrap().dtype(), Dtype::F32);
}

#[test]
fn what_does_not_fit_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.safetensors");
    let ends = |text: &str| {
        let error = open_error(folder.path());
        assert!(error.ends_with(text), "{error}");
    };
    ends("No such file or directory (os error 2)");
    std::fs::write(&file, b"not a header").unwrap();
    assert!(open_error(folder.path()).contains("model.safetensors: "));

    let mut all = tensors(&shape());
    let gone = all.remove(3);
    write(&file, &all, safetensors::Dtype::F32, |_| 0);
    ends("model.safetensors: tensor `model.layers.0.self_attn.k_proj.weight` is missing");
    all.push(TensorSpec { shape: vec![4, 8], ..gone });
    write(&file, &all, safetensors::Dtype::F32, |_| 0);
    ends("tensor `model.layers.0.self_attn.k_proj.weight` has shape [4, 8], config.json makes it [768, 8]");
    write(&file, &tensors(&shape()), safetensors::Dtype::I16, |_| 0);
    ends("tensor `model.embed_tokens.weight` has dtype I16, expected F32, BF16 or F16");
}

#[test]
fn a_bad_index_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let index = folder.path().join("model.safetensors.index.json");
    let error = |json: serde_json::Value| {
        std::fs::write(&index, json.to_string()).unwrap();
        let error = open_error(folder.path());
        error.split_once("index.json: ").map_or(error.clone(), |e| e.1.to_string())
    };
    assert_eq!(error(json!({})), "`weight_map` is not an object");
    assert_eq!(error(json!({ "weight_map": { "x": "../a" } })), "`x`: \"../a\" is not the name of a file");
    assert_eq!(error(json!({ "weight_map": {} })), "tensor `model.embed_tokens.weight` is missing");
    assert!(error(json!({ "weight_map": { "x": "gone.safetensors" } })).contains("gone.safetensors: No such file"));
}
