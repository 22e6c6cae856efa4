//! The folder in which a running world tells how it is reached.

use anyhow::{Context, bail};
use std::fs::{File, TryLockError};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The folder of one running world. The lock goes with the process, however that ends.
pub struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Makes the folder this process's own.
    pub fn claim(path: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(path).with_context(|| format!("creating {}", path.display()))?;
        let path = path.canonicalize().with_context(|| format!("finding {}", path.display()))?;
        let file = path.join("lock");
        let lock = File::create(&file).with_context(|| format!("writing {}", file.display()))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path, _lock: lock }),
            Err(TryLockError::WouldBlock) => {
                bail!("{} is in use by another drover; give another --data", path.display())
            }
            Err(TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("locking {}", file.display()))
            }
        }
    }

    /// Where a file of this name is.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file that only its owner may read; whoever reads it meanwhile sees it whole, old or new.
    pub fn secret(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let (path, part) = (self.file(name), self.file(&format!(".{name}.part")));
        let mut options = std::fs::OpenOptions::new();
        options.create(true).write(true).truncate(true).mode(0o600);
        let written = options.open(&part).and_then(|mut file| file.write_all(text.as_bytes()));
        written
            .and_then(|()| std::fs::rename(&part, &path))
            .with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }
}
