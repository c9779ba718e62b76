//! Tests on small synthetic tables, which the tests write. No test reads the package.

use super::curve::Curve;
use super::package::order;
use super::{Engine, KernelPass, KernelsSpec, Package, Provenance};
use crate::hardware::gpus::GpuName;
use crate::hardware::models::{Attention, FeedForward, LayerGroup, ModelChoice, ModelShape};
use crate::hardware::spec::tests::assert_least;
use foretoken_sim::{LatencyModel, PassShape};
use parquet::basic::Compression;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A table: the names of its whole numbers and words, and its rows (numbers, words, latency in ms).
struct Rows<'a>(&'a [&'a str], &'a [&'a str], Vec<(Vec<i64>, Vec<&'a str>, f64)>);

fn write(path: &Path, Rows(numbers, words, rows): &Rows, compression: Compression) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let number = numbers.iter().map(|name| format!("OPTIONAL INT64 {name};"));
    let word = words.iter().map(|name| format!("OPTIONAL BYTE_ARRAY {name} (UTF8);"));
    let fields: String = number.chain(word).collect();
    let schema = parse_message_type(&format!("message t {{ {fields} OPTIONAL DOUBLE latency; }}")).unwrap();
    let properties = WriterProperties::builder().set_compression(compression).build();
    let file = fs::File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties)).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let levels = vec![1; rows.len()];
    let mut column = 0;
    while let Some(mut next) = group.next_column().unwrap() {
        match next.untyped() {
            ColumnWriter::Int64ColumnWriter(writer) => {
                let values: Vec<i64> = rows.iter().map(|row| row.0[column]).collect();
                writer.write_batch(&values, Some(&levels), None).unwrap();
            }
            ColumnWriter::ByteArrayColumnWriter(writer) => {
                let values: Vec<ByteArray> = rows.iter().map(|row| row.1[column - numbers.len()].into()).collect();
                writer.write_batch(&values, Some(&levels), None).unwrap();
            }
            ColumnWriter::DoubleColumnWriter(writer) => {
                let values: Vec<f64> = rows.iter().map(|row| row.2).collect();
                writer.write_batch(&values, Some(&levels), None).unwrap();
            }
            _ => unreachable!("a table has numbers, words and times"),
        }
        next.close().unwrap();
        column += 1;
    }
    group.close().unwrap();
    writer.close().unwrap();
}

/// A folder of synthetic tables, removed at the end.
struct Tables(PathBuf);

impl Drop for Tables {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Times in ms of the synthetic kernels.
fn product_ms(m: f64, n: f64, k: f64) -> f64 {
    1e-3 * (3.0 + n * k / 1e6 + m * n * k / 1e9)
}

fn decode_ms(batch: f64, context: f64) -> f64 {
    1e-3 * (10.0 + batch * context / 1e3)
}

fn prompt_ms(batch: f64, n: f64) -> f64 {
    1e-3 * (10.0 + batch * n * n / 1e5)
}

const GEMM: &str = "gemm/vllm/0.24.0/gemm";

impl Tables {
    /// An unpacked wheel with the tables of an h200 for vLLM.
    fn new() -> Tables {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let top = std::env::temp_dir().join(format!("foretoken-kernels-{}-{number}", std::process::id()));
        fs::create_dir_all(top.join("aiconfigurator_core-0.12.0.dist-info")).unwrap();
        let tables = Tables(top);
        let mut rows = Vec::new();
        let sizes = [256, 1024, 4096];
        let products = sizes.iter().flat_map(|&n| sizes.iter().map(move |&k| (n, k)));
        for (n, k) in products {
            for m in [1, 8, 64, 512, 4096] {
                rows.push((vec![m, n, k], vec!["bfloat16"], product_ms(m as f64, n as f64, k as f64)));
            }
        }
        tables.put(GEMM, &Rows(&["m", "n", "k"], &["gemm_dtype"], rows.clone()));
        rows.iter_mut().for_each(|row| (row.1, row.2) = (vec!["fp8_block"], 7.0));
        tables.put("gemm/sglang/0.5.14/gemm", &Rows(&["m", "n", "k"], &["gemm_dtype"], rows));
        let names = ["batch_size", "isl", "step", "num_heads", "num_key_value_heads", "head_dim", "window_size"];
        let (mut decodes, mut prompts) = (Vec::new(), Vec::new());
        for b in [1, 2, 4, 16, 64] {
            for step in [0, 127, 1023, 8191] {
                let ms = decode_ms(b as f64, step as f64 + 1.0);
                decodes.push((vec![b, 1, step, 8, 2, 128, 0], vec!["bfloat16"], ms));
            }
            for n in [128, 512, 2048] {
                prompts.push((vec![b, n, 0, 8, 2, 128, 0], vec!["bfloat16"], prompt_ms(b as f64, n as f64)));
            }
        }
        tables.put("attention/vllm/0.24.0/generation_attention", &Rows(&names, &["kv_cache_dtype"], decodes));
        tables.put("attention/vllm/0.24.0/context_attention", &Rows(&names, &["kv_cache_dtype"], prompts));
        let reduces = [(2, 1024, 0.004), (2, 1 << 20, 0.02)];
        let mut rows = Vec::new();
        for (gpus, size, ms) in reduces {
            rows.push((vec![gpus, size], vec!["vLLM_custom_eager"], 0.5 * ms));
            rows.push((vec![gpus, size], vec!["vLLM_custom_graph"], ms));
        }
        tables.put("comm/vllm/0.24.0/custom_allreduce", &Rows(&["num_gpus", "message_size"], &["kernel_source"], rows));
        let names = ["hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size", "num_tokens"];
        let words = ["moe_dtype", "distribution"];
        let experts = |inner| {
            let of = |m: i64, routing, ms| (vec![1024, inner, 2, 8, 1, 1, m], vec!["bfloat16", routing], ms);
            vec![of(1, "balanced", 9.0), of(1, "power_law_1.2", 0.1), of(64, "power_law_1.2", 0.8)]
        };
        tables.put("moe/vllm/0.24.0/moe", &Rows(&names, &words, experts(512)));
        let older = [experts(768)[..2].to_vec(), experts(512)[1..2].to_vec()].concat();
        tables.put("moe/vllm/0.9.0/moe", &Rows(&names, &words, older));
        tables
    }

    fn path(&self, table: &str) -> PathBuf {
        self.0.join("aiconfigurator_core/systems/data/h200_sxm").join(format!("{table}_perf.parquet"))
    }

    fn put(&self, table: &str, rows: &Rows) {
        write(&self.path(table), rows, Compression::SNAPPY);
    }

    fn spec(&self, shape: ModelShape) -> KernelsSpec {
        let settings = serde_json::json!({
            "gpu": "h200", "engine": "vllm", "model": "llama-3.1-8b", "package": self.0.display().to_string(),
        });
        KernelsSpec { model: ModelChoice::Shape(Box::new(shape)), ..serde_json::from_value(settings).unwrap() }
    }

    fn built(&self, shape: ModelShape) -> (KernelPass, Provenance) {
        let spec = self.spec(shape);
        (spec.build().unwrap_or_else(|e| panic!("{e}")), spec.provenance().unwrap())
    }

    fn refused(&self, change: impl Fn(&mut KernelsSpec)) -> String {
        let mut spec = self.spec(shape());
        change(&mut spec);
        spec.check().unwrap_err().to_string()
    }
}

/// The shape with 8 experts, 2 of them active, that are `intermediate` wide inside.
fn experts(intermediate: u32) -> ModelShape {
    let mut shape = shape();
    shape.layers[0].feed_forward =
        FeedForward::Experts { total: 8, active: 2, intermediate, shared_intermediate: 0, latent: None, gated: true };
    shape
}

fn shape() -> ModelShape {
    let attention = Attention::Grouped {
        heads: 8,
        kv_heads: 2,
        head_dim: 128,
        value_dim: None,
        input: None,
        window: None,
        gated: false,
        values_from_keys: false,
        selection: None,
    };
    let feed_forward = FeedForward::Dense { intermediate: 2048, gated: true };
    ModelShape {
        name: "small".into(),
        hidden: 1024,
        vocab: 4096,
        tied: false,
        layers: vec![LayerGroup { count: 3, attention, feed_forward }],
        joining_parameters: 0.0,
        bits: crate::hardware::models::Bits::default(),
    }
}

fn small_s(layers: f64, tokens: f64, inner: f64) -> f64 {
    let fits = crate::hardware::floors::floors(
        &crate::hardware::gpus::GpuChoice::preset("h200"),
        &crate::hardware::gpus::gpu("h200").unwrap().gpu,
    );
    let bandwidth = 4.8e12 * fits.small.bandwidth;
    layers
        * (crate::hardware::floors::SMALL_KERNELS * fits.small.floor_s
            + tokens * (16.0 * 1024.0 + 6.0 * inner) / bandwidth)
        + crate::hardware::floors::PASS_S
}

/// A second way to compute: the kernels of a step one by one, from the formulas that made the tables.
#[test]
fn a_pass_is_the_sum_of_its_kernels() {
    let (pass, _) = Tables::new().built(shape());
    let m = 64.0;
    let products = product_ms(m, 1536.0, 1024.0)
        + product_ms(m, 1024.0, 1024.0)
        + product_ms(m, 4096.0, 1024.0)
        + product_ms(m, 1024.0, 2048.0);
    let layers = 3.0 * (products + decode_ms(64.0, 501.0));
    let whole = 1e-3 * (layers + product_ms(m, 4096.0, 1024.0)) + small_s(3.0, m, 2048.0);
    let shape = PassShape { requests: 64, batched: 64, context: 64 * 500, pairs: 64 * 501 };
    assert!((pass.pass_s(shape) / whole - 1.0).abs() < 1e-9, "{} against {whole}", pass.pass_s(shape));
    assert_least(&pass);
}

#[test]
fn a_prompt_pays_for_its_pairs_and_samples_once() {
    let (pass, _) = Tables::new().built(shape());
    let n = 2048.0;
    let at = |pairs| pass.pass_s(PassShape { requests: 1, batched: 2048, context: 0, pairs });
    let pairs = 2048 * 2049 / 2;
    let attended = 3e-3 * (prompt_ms(1.0, n) - prompt_ms(1.0, 128.0));
    assert!(((at(pairs) - at(1)) / attended - 1.0).abs() < 1e-9);
    // All but the head's products are of 2048 tokens; the head's is of one.
    let of = |n: f64, k: f64| product_ms(2048.0, n, k);
    let layer = of(1536.0, 1024.0) + of(1024.0, 1024.0) + of(4096.0, 1024.0) + of(1024.0, 2048.0);
    let whole = 1e-3 * (3.0 * (layer + decode_ms(1.0, 1.0)) + product_ms(1.0, 4096.0, 1024.0));
    assert!(((at(1)) / (whole + small_s(3.0, n, 2048.0)) - 1.0).abs() < 1e-9);
}

/// A pass that verifies K drafts of each request: products of all tokens, KV read once, the arithmetic of the others.
#[test]
fn a_verification_reads_the_context_once() {
    let (pass, _) = Tables::new().built(shape());
    let of = |requests: u64, k: u64, context: u64| PassShape {
        requests,
        batched: requests * (k + 1),
        context: requests * context,
        pairs: requests * ((k + 1) * context + (k + 1) * (k + 2) / 2),
    };
    let more = |context| pass.pass_s(of(16, 3, context)) - pass.pass_s(of(16, 3, 0));
    let read = 3e-3 * (decode_ms(16.0, 1001.0) - decode_ms(16.0, 1.0));
    let plain = pass.pass_s(of(16, 0, 1000)) - pass.pass_s(of(16, 0, 0));
    assert!((plain / read - 1.0).abs() < 1e-9);
    assert!(more(1000) > read && more(1000) < 4.0 * read, "{} and {read}", more(1000));
    // As if each draft were a request, the context would be read four times.
    assert!(pass.pass_s(of(16, 3, 1000)) < pass.pass_s(of(64, 0, 1000)));
}

/// Two ranks of a GPU share the experts: their table is that of two GPUs, at the tokens of both, and the exchange of
/// tokens takes an all-reduce. The rest is a pass of the rank's own tokens.
#[test]
fn ranks_share_experts_at_the_tokens_of_all() {
    let tables = Tables::new();
    let sparse = experts(512);
    let names = ["hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size", "num_tokens"];
    let of = |m: i64, ms| (vec![1024, 512, 2, 8, 1, 2, m], vec!["bfloat16", "power_law_1.2"], ms);
    let rows = vec![of(1, 0.1), of(64, 0.4), of(128, 0.8)];
    tables.put("moe/vllm/0.24.0/moe", &Rows(&names, &["moe_dtype", "distribution"], rows));
    let spec = KernelsSpec { data_parallel: 2, expert_parallel: true, ..tables.spec(sparse) };
    let pass = spec.build().unwrap();
    let one = PassShape { requests: 64, batched: 64, context: 64 * 500, pairs: 64 * 501 };
    let more = (pass.pass_beside(one, 128) - pass.pass_beside(one, 64)).as_s();
    // The synthetic all-reduce of 2 GPUs rises by 0.016 ms from 1024 to 1024^2 values.
    let reduce = 0.016e-3 * 64.0 * 1024.0 / ((1 << 20) - 1024) as f64;
    assert!((more / (3.0 * (0.4e-3 + reduce)) - 1.0).abs() < 1e-6, "{more}");
    assert_eq!(pass.pass(one), pass.pass_beside(one, 128), "ranks of equal passes");
}

#[test]
fn experts_come_from_the_version_and_the_routing_of_the_rule() {
    let tables = Tables::new();
    let (_, from) = tables.built(experts(512));
    assert!(from.notes.iter().any(|n| n == "experts in bfloat16, chosen as power_law_1.2"), "{from:?}");
    // The newest version lacks this width, an older one has it.
    let (_, from) = tables.built(experts(768));
    assert!(from.notes.iter().any(|n| n.contains("768 inside") && n.contains("vllm 0.9.0")), "{from:?}");
    // A release takes the version that is not newer, where there is one.
    let of = |version: &str| KernelsSpec { version: Some(version.into()), ..tables.spec(experts(512)) };
    let [old, between, new] = ["0.9.0", "0.19.0", "0.24.1"].map(|v| of(v).build().unwrap());
    let plain = PassShape { requests: 64, batched: 64, context: 0, pairs: 64 };
    assert!(old.pass_s(plain) == between.pass_s(plain) && new.pass_s(plain) < old.pass_s(plain));
    assert!(of("newest").check().unwrap_err().to_string().starts_with("version: newest is no release"));
    let why = tables.spec(experts(640)).check().unwrap_err().to_string();
    assert!(why.contains("moe/moe of vllm 0.24.0, 0.9.0 on h200_sxm has no experts in bfloat16: 2 of 8"), "{why}");
}

#[test]
fn heads_that_were_not_measured_are_those_of_more_requests() {
    let mut twice = shape();
    twice.bits.kv = 16.0;
    let Attention::Grouped { heads, kv_heads, .. } = &mut twice.layers[0].attention else { panic!() };
    (*heads, *kv_heads) = (16, 4);
    let tables = Tables::new();
    let (pass, from) = tables.built(twice);
    assert!(from.notes.iter().any(|n| n.contains("as of 2 times the requests with 8 and 2")), "{from:?}");
    let at = |context: u64| {
        pass.pass_s(PassShape { requests: 8, batched: 8, context: 8 * context, pairs: 8 * (context + 1) })
    };
    let read = 3e-3 * (decode_ms(16.0, 1000.0) - decode_ms(16.0, 1.0));
    assert!(((at(999) - at(0)) / read - 1.0).abs() < 1e-9);
}

#[test]
fn query_heads_that_were_not_measured_are_the_next_more() {
    let mut fewer = shape();
    let Attention::Grouped { heads, .. } = &mut fewer.layers[0].attention else { panic!() };
    *heads = 6;
    let (pass, from) = Tables::new().built(fewer);
    assert!(from.notes.iter().any(|n| n.contains("6 heads, 2 of KV: a decode as of 8 heads, a prompt in")), "{from:?}");
    let at = |pairs| pass.pass_s(PassShape { requests: 1, batched: 2048, context: 0, pairs });
    let attended = 3e-3 * 6.0 / 8.0 * (prompt_ms(1.0, 2048.0) - prompt_ms(1.0, 128.0));
    assert!(((at(2048 * 2049 / 2) - at(1)) / attended - 1.0).abs() < 1e-9);
    let of = |c: u64| pass.pass_s(PassShape { requests: 8, batched: 8, context: 8 * c, pairs: 8 * (c + 1) });
    let read = 3e-3 * (decode_ms(8.0, 1000.0) - decode_ms(8.0, 1.0));
    assert!(((of(999) - of(0)) / read - 1.0).abs() < 1e-9);
}

/// Marlin was measured with 4 of 16 experts of twice the width: as many tokens of an expert, half the weights of each
/// and half as many experts.
#[test]
fn experts_by_marlin_take_the_time_of_the_measured_shape() {
    let mut quantised = experts(512);
    (quantised.bits.experts, quantised.bits.expert_activations) = (4.25, 16.0);
    let names = ["hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size", "num_tokens"];
    let words = ["moe_dtype", "distribution", "kernel_source"];
    let of = |inner, topk, experts, m: i64, kernel, ms| {
        let numbers = vec![1024, inner, topk, experts, 1, 1, m];
        (numbers, vec!["w4a16_mxfp4", "power_law_1.2", kernel], ms)
    };
    let own = |m, ms| of(512, 2, 8, m, "triton", ms);
    let tables = Tables::new();
    let with = |rows| tables.put("moe/vllm/0.24.0/moe", &Rows(&names, &words, rows));
    with(vec![own(1, 0.1), own(64, 0.8), own(4096, 8.0)]);
    let fast = tables.built(quantised.clone()).0;
    let spec = KernelsSpec { marlin: true, ..tables.spec(quantised) };
    let why = spec.check().unwrap_err().to_string();
    assert!(why.contains("no experts in w4a16_mxfp4 by Marlin kernels"), "{why}");
    let marlin = |m, ms| of(1024, 4, 16, m, "an_marlin_moe", ms);
    with(vec![own(1, 0.1), own(64, 0.8), own(4096, 8.0), marlin(1, 0.1), marlin(64, 3.2), marlin(4096, 64.0)]);
    // Passes are kept by their settings, and these tables changed.
    let spec = KernelsSpec { memory_utilization: 0.8, ..spec };
    let (slow, notes) = (spec.build().unwrap(), spec.provenance().unwrap().notes);
    assert!(notes.iter().any(|n| n.ends_with("as of 4 of 16, 1024 wide, 1024 inside, at as many tokens of an expert")));
    let more = |m: u64| {
        let shape = PassShape { requests: m, batched: m, context: 0, pairs: m };
        (slow.pass_s(shape) - fast.pass_s(shape)) / 3e-3
    };
    // A quarter of the weights: 0.8 ms for 64 tokens, as its own kernel, and 16 ms for 4096, where its own has 8.
    assert!(more(64).abs() < 1e-9 && (more(4096) - 8.0).abs() < 1e-9, "{} and {}", more(64), more(4096));
}

#[test]
fn repairs_and_choices_are_said() {
    let tables = Tables::new();
    let mut blocks = shape();
    (blocks.bits.weights, blocks.bits.activations) = (8.0, 8.0);
    let spec = KernelsSpec { fp8_blocks: true, tensor_parallel: 2, ..tables.spec(blocks) };
    // The two GPUs have 4 heads each, which the synthetic table lacks.
    assert!(spec.check().unwrap_err().to_string().contains("4 heads, 1 of KV"), "{:?}", spec.check());
    let spec = KernelsSpec { tensor_parallel: 1, ..spec };
    let notes = spec.provenance().unwrap().notes;
    assert!(notes.iter().any(|n| n.starts_with("fp8_block products of sglang 0.5.14, because vLLM's")), "{notes:?}");
}

#[test]
fn bad_input_is_refused_by_name() {
    let tables = Tables::new();
    let why = tables.refused(|s| s.package = Some("/nowhere".into()));
    assert!(why.starts_with("package: /nowhere has no kernel times"), "{why}");
    let why = tables.refused(|s| s.gpu = GpuName("t4".into()));
    assert!(why.starts_with("gpu: t4 has no measured kernels; there are a100-80g"), "{why}");
    let why = tables.refused(|s| s.gpu = GpuName("h100".into()));
    assert!(why.contains("no table gemm/gemm of vllm on h100_sxm"), "{why}");
    let why = tables.refused(|s| s.engine = Engine::Trtllm);
    assert!(why.contains("gemm/gemm of trtllm on h200_sxm: it has vllm, sglang"), "{why}");
    let why = tables.refused(|s| s.kv_bits = Some(8.0));
    assert!(why.contains("no attention of a decode with 8 heads, 2 of KV, 128 wide, fp8 KV"), "{why}");
    let why = tables.refused(|s| s.tensor_parallel = 3);
    assert!(why.contains("8 query heads cannot be split evenly over 3 GPUs"), "{why}");
    let mut fp8 = shape();
    (fp8.bits.weights, fp8.bits.activations) = (8.0, 8.0);
    let why = tables.spec(fp8).check().unwrap_err().to_string();
    assert!(why.contains("gemm of vllm 0.24.0 on h200_sxm has no products in fp8"), "{why}");
}

#[test]
fn broken_files_and_impossible_times_are_refused() {
    let row = |ms| Rows(&["m", "n", "k"], &["gemm_dtype"], vec![(vec![1, 1, 1], vec!["bfloat16"], ms)]);
    for ms in [-1.0, 0.0, f64::NAN, 1e9] {
        let tables = Tables::new();
        tables.put(GEMM, &row(ms));
        let why = tables.refused(|_| ());
        assert!(why.contains("gemm_perf.parquet has an impossible time"), "{why}");
    }
    let tables = Tables::new();
    fs::write(tables.path(GEMM), "no Parquet").unwrap();
    let why = tables.refused(|_| ());
    assert!(why.contains("gemm_perf.parquet cannot be read"), "{why}");
    let whole = fs::read(Tables::new().path(GEMM)).unwrap();
    let tables = Tables::new();
    fs::write(tables.path(GEMM), &whole[..whole.len() / 2]).unwrap();
    assert!(tables.refused(|_| ()).contains("gemm_perf.parquet cannot be read"));
}

#[test]
fn the_package_is_found_in_all_its_forms() {
    let tables = Tables::new();
    let inner = tables.0.join("aiconfigurator_core");
    for folder in [tables.0.clone(), inner.clone(), inner.join("systems")] {
        let package = Package::within(&folder).unwrap();
        assert_eq!((package.systems.clone(), package.version), (inner.join("systems"), Some("0.12.0".to_owned())));
    }
    assert_eq!(Package::within(&tables.0.join("aiconfigurator_core-0.12.0.dist-info")), None);
    let package = Package::within(&tables.0).unwrap();
    assert_eq!(package.title(), "aiconfigurator-core 0.12.0");
    assert_eq!(package.versions("h200_sxm")["vllm"], ["0.9.0", "0.24.0"]);
    fs::rename(
        tables.0.join("aiconfigurator_core-0.12.0.dist-info"),
        tables.0.join("aiconfigurator_core-0.13.0.dist-info"),
    )
    .unwrap();
    let (_, from) = tables.built(shape());
    assert!(from.notes[0].contains("0.13.0 (tested with 0.12.0)"), "{from:?}");
    assert!(order("1.3.0rc20") > order("1.3.0rc5"));
}

#[test]
fn curves_never_fall_where_prompts_are_dearer() {
    let curve = Curve::new(vec![(1.0, 2.0), (2.0, 1.0)]).rising();
    assert_eq!(curve.at(2.0), 2.0);
}
