//! A checkpoint, in one of three forms: a Hugging Face folder with `model.safetensors`; a folder with
//! `model.safetensors.index.json` and the files that this index names; or a file that is part of this crate.
//!
//! Files are mapped into memory, not read. The names, sizes and types of all tensors are checked against the model's
//! shape before any weight is used.

use super::{Dtype, TensorData, Weights, tensors};
use crate::model::{LlamaShape, SHIPPED};
use memmap2::Mmap;
use safetensors::SafeTensors;
use std::collections::HashMap;
use std::fs::File;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};

/// Why a checkpoint cannot be read, or does not fit the model's shape.
#[derive(Debug, thiserror::Error)]
pub enum BadCheckpoint {
    /// A file of the checkpoint cannot be opened, read or mapped.
    #[error("{}: {why}", file.display())]
    Unreadable {
        /// The path of the checkpoint file that cannot be opened, read or mapped.
        file: PathBuf,
        why: std::io::Error,
    },
    /// A file of the checkpoint does not have the format that the file's name states.
    #[error("{}: {why}", file.display())]
    Malformed { file: PathBuf, why: String },
    /// A tensor that the model's shape needs is missing.
    #[error("{}: tensor `{tensor}` is missing", file.display())]
    Missing {
        /// The path of the file or index that should list the tensor.
        file: PathBuf,
        tensor: String,
    },
    /// A tensor does not have the sizes that the model's shape needs.
    #[error("{}: tensor `{tensor}` has shape {found:?}, config.json makes it {expected:?}", file.display())]
    Shape {
        file: PathBuf,
        /// The name of the tensor with the wrong sizes.
        tensor: String,
        /// The sizes of the tensor that the model's shape needs.
        expected: Vec<usize>,
        /// The sizes of the tensor in the checkpoint file.
        found: Vec<usize>,
    },
    /// A tensor's numbers have an unsupported type.
    #[error("{}: tensor `{tensor}` has dtype {found}, expected F32, BF16 or F16", file.display())]
    Dtype {
        file: PathBuf,
        /// The name of the tensor whose type is unsupported.
        tensor: String,
        /// The name of the tensor's type in safetensors.
        found: String,
    },
}

struct Place {
    file: usize,
    dtype: Dtype,
    bytes: Range<usize>,
}

/// The bytes of a checkpoint file: mapped into memory, or part of the program.
enum Bytes {
    Mapped(Mmap),
    Embedded(&'static [u8]),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Mapped(file) => file,
            Bytes::Embedded(bytes) => bytes,
        }
    }
}

/// The tensors of one model, in mapped files or in the program itself.
pub struct Checkpoint {
    files: Vec<Bytes>,
    places: HashMap<String, Place>,
    dtype: Dtype,
}

/// A safetensors file with its parsed header.
struct Header {
    path: PathBuf,
    /// Byte offset in the file at which the tensors' data begin.
    data: usize,
    metadata: safetensors::tensor::Metadata,
}

impl Checkpoint {
    /// Maps the files of `folder` and finds every tensor of `shape` in them. Tensors that the shape does not need are
    /// ignored.
    pub fn open(folder: &Path, shape: &LlamaShape) -> Result<Checkpoint, BadCheckpoint> {
        let listing = Listing::of(folder)?;
        let mut files = Vec::new();
        for path in listing.files() {
            let unreadable = |why| BadCheckpoint::Unreadable { file: path.clone(), why };
            files.push(Bytes::Mapped(map(&File::open(path).map_err(unreadable)?).map_err(unreadable)?));
        }
        Checkpoint::of(listing, files, shape)
    }

    /// Returns the weights of a model that ships with this crate ([`crate::model::SHIPPED`]). [`crate::model::preset`]
    /// returns the shape of such a model. `None` for any other name.
    pub fn shipped(name: &str) -> Option<Checkpoint> {
        let file = Bytes::Embedded(file(name)?);
        let shape = crate::model::preset(name)?;
        let checkpoint = Checkpoint::of(Listing::Single(name.into()), vec![file], &shape);
        Some(checkpoint.expect("what is shipped fits its shape"))
    }

    fn of(listing: Listing, files: Vec<Bytes>, shape: &LlamaShape) -> Result<Checkpoint, BadCheckpoint> {
        let headers = listing.files().iter().zip(&files).map(|(path, file)| header(path, file));
        let headers = headers.collect::<Result<Vec<_>, _>>()?;
        let mut places = HashMap::new();
        let mut dtype = Dtype::Bf16;
        for spec in tensors(shape) {
            let Some(file) = listing.file_of(&spec.name) else {
                return Err(BadCheckpoint::Missing { file: listing.path().into(), tensor: spec.name });
            };
            let header = &headers[file];
            let path = || header.path.clone();
            let Some(info) = header.metadata.info(&spec.name) else {
                return Err(BadCheckpoint::Missing { file: path(), tensor: spec.name });
            };
            if info.shape != spec.shape {
                let (expected, found) = (spec.shape, info.shape.clone());
                return Err(BadCheckpoint::Shape { file: path(), tensor: spec.name, expected, found });
            }
            let stored = match info.dtype {
                safetensors::Dtype::F32 => Dtype::F32,
                safetensors::Dtype::BF16 => Dtype::Bf16,
                safetensors::Dtype::F16 => Dtype::F16,
                other => {
                    let found = format!("{other:?}");
                    return Err(BadCheckpoint::Dtype { file: path(), tensor: spec.name, found });
                }
            };
            if spec.shape.len() == 2 && stored != Dtype::Bf16 {
                dtype = Dtype::F32;
            }
            let (from, to) = info.data_offsets;
            places.insert(spec.name, Place { file, dtype: stored, bytes: header.data + from..header.data + to });
        }
        Ok(Checkpoint { files, places, dtype })
    }
}

impl Weights for Checkpoint {
    fn tensor(&self, name: &str) -> TensorData<'_> {
        let place = self.places.get(name).unwrap_or_else(|| panic!("`{name}` is no tensor of the shape"));
        TensorData::Stored { dtype: place.dtype, bytes: &self.files[place.file][place.bytes.clone()] }
    }

    fn dtype(&self) -> Dtype {
        self.dtype
    }
}

/// The files of a checkpoint, and which file has each tensor.
enum Listing {
    Single(PathBuf),
    Sharded { index: PathBuf, files: Vec<PathBuf>, places: HashMap<String, usize> },
}

impl Listing {
    fn of(folder: &Path) -> Result<Listing, BadCheckpoint> {
        let index = folder.join("model.safetensors.index.json");
        if !index.exists() {
            return Ok(Listing::Single(folder.join("model.safetensors")));
        }
        let malformed = |why: String| BadCheckpoint::Malformed { file: index.clone(), why };
        let text = std::fs::read(&index).map_err(|why| BadCheckpoint::Unreadable { file: index.clone(), why })?;
        let json: serde_json::Value = serde_json::from_slice(&text).map_err(|e| malformed(e.to_string()))?;
        let map = json.get("weight_map").and_then(|m| m.as_object());
        let map = map.ok_or_else(|| malformed("`weight_map` is not an object".into()))?;
        let (mut names, mut places) = (Vec::<&str>::new(), HashMap::new());
        for (tensor, file) in map {
            // A name that contains a path is refused, because it could point to any file of the machine.
            let name = file.as_str().filter(|f| Path::new(f).file_name().is_some_and(|n| n == *f));
            let name = name.ok_or_else(|| malformed(format!("`{tensor}`: {file} is not the name of a file")))?;
            let at = names.iter().position(|n| *n == name).unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            });
            places.insert(tensor.clone(), at);
        }
        let files = names.iter().map(|n| folder.join(n)).collect();
        Ok(Listing::Sharded { index, files, places })
    }

    fn files(&self) -> &[PathBuf] {
        match self {
            Listing::Single(file) => std::slice::from_ref(file),
            Listing::Sharded { files, .. } => files,
        }
    }

    fn file_of(&self, tensor: &str) -> Option<usize> {
        match self {
            Listing::Single(_) => Some(0),
            Listing::Sharded { places, .. } => places.get(tensor).copied(),
        }
    }

    /// Returns the path that an error names if a tensor is missing: the index if the checkpoint has one, else the only
    /// file.
    fn path(&self) -> &Path {
        match self {
            Listing::Single(file) => file,
            Listing::Sharded { index, .. } => index,
        }
    }
}

fn header(path: &Path, file: &[u8]) -> Result<Header, BadCheckpoint> {
    let (length, metadata) = SafeTensors::read_metadata(file)
        .map_err(|e| BadCheckpoint::Malformed { file: path.into(), why: e.to_string() })?;
    // In a safetensors file, eight bytes before the header give the header's length. The tensors' data follow the
    // header.
    Ok(Header { path: path.into(), data: 8 + length, metadata })
}

#[expect(unsafe_code, reason = "a mapped file is memory that others can change; no safe call exists")]
fn map(file: &File) -> std::io::Result<Mmap> {
    // SAFETY: only numbers are read from the file, and any bits are valid numbers. The header is copied before it is
    // used. If another process truncates the file, the system kills this process; no check could prevent this.
    unsafe { Mmap::map(file) }
}

#[cfg(test)]
#[path = "checkpoint_tests.rs"]
mod tests;

/// Bytes of a file, aligned in memory. In the file the tensors begin at multiples of eight bytes, so an aligned file's
/// tensors can be read in place.
#[repr(C, align(64))]
struct Aligned<B: ?Sized>(B);

static TARGET: &Aligned<[u8]> = &Aligned(*include_bytes!("../../pair/target/model.safetensors"));
static DRAFT: &Aligned<[u8]> = &Aligned(*include_bytes!("../../pair/draft/model.safetensors"));

/// Returns the bytes of the `model.safetensors` of a model that ships with this crate; `None` for other names.
pub(super) fn file(name: &str) -> Option<&'static [u8]> {
    let at = SHIPPED.iter().position(|shipped| *shipped == name)?;
    Some(&[TARGET, DRAFT][at].0)
}
