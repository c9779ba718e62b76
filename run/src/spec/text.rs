//! Reads texts that people write, such as experiments, prompts and server states for `decide`. Pipes are read like
//! files. A text without an end is refused, because the length is limited.

use foretoken_traces::limits;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

pub fn read(path: &Path) -> Result<String> {
    let named = |e: Error| Error::new(e.kind(), format!("{}: {e}", path.display()));
    foretoken_traces::raw(path).and_then(whole).map_err(named)
}

/// Reads all of `from`, which must be UTF-8 and end within the limit.
pub fn whole(from: impl Read) -> Result<String> {
    let most = limits::text();
    let mut text = String::new();
    from.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most {
        let what = format!("is longer than {}; {}", limits::bytes(most), limits::raise());
        return Err(Error::new(ErrorKind::FileTooLarge, what));
    }
    Ok(text)
}

/// The texts of a model's `config.json` and of the `hf_quant_config.json` beside it, if there is one. `path` is one of
/// the two files, or their folder.
pub fn model_config(path: &Path) -> Result<(String, Option<String>)> {
    let second = "hf_quant_config.json";
    let config = match path {
        folder if folder.is_dir() => folder.join("config.json"),
        file if file.file_name().is_some_and(|name| name == second) => file.with_file_name("config.json"),
        file => file.to_path_buf(),
    };
    let beside = config.with_file_name(second);
    let quantization = if beside.is_file() { Some(read(&beside)?) } else { None };
    Ok((read(&config)?, quantization))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_or_either_file_names_a_model() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("config.json"), "{}").unwrap();
        assert_eq!(model_config(folder.path()).unwrap(), ("{}".into(), None));
        std::fs::write(path("hf_quant_config.json"), "{ }").unwrap();
        for file in [folder.path().to_owned(), path("config.json"), path("hf_quant_config.json")] {
            assert_eq!(model_config(&file).unwrap(), ("{}".into(), Some("{ }".into())));
        }
    }

    #[test]
    fn an_endless_text_is_refused() {
        assert_eq!(whole(&b"name = 1"[..]).unwrap(), "name = 1");
        let error = whole(std::io::repeat(b'x')).unwrap_err().to_string();
        assert!(error.starts_with("is longer than") && error.contains("FORETOKEN_MEMORY_GIB"), "{error}");
        let missing = read(Path::new("no/such.toml")).unwrap_err().to_string();
        assert!(missing.starts_with("no/such.toml: "), "{missing}");
    }
}
