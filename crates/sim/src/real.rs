//! A real control plane for a suite, or one loud line about what is not run without it.

use crate::stage::Stage;
use anyhow::Context;
use drover_lab::kube::{Assets, ControlPlane, Options};
use std::path::{Path, PathBuf};

/// A real control plane; its logs stay unless it is ended in order.
pub struct Real {
    pub plane: ControlPlane,
    logs: Logs,
}

struct Logs(PathBuf);

impl Drop for Logs {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the control plane's logs are in {}", self.0.display());
        }
    }
}

impl Real {
    /// Starts one below `scratch`; None, and a line on standard error, when there are no programs for it.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start(suite: &str, cases: usize, scratch: &Path) -> anyhow::Result<Option<Self>> {
        let Some(assets) = Assets::for_suite(suite, cases) else { return Ok(None) };
        let folder = scratch.join(format!("{suite}-{}", std::process::id()));
        let plane = ControlPlane::start(&assets, &folder, &Options::default()).await?;
        Ok(Some(Self { plane, logs: Logs(folder) }))
    }

    /// A stage at this control plane, with a cloud and nodes of its own.
    ///
    /// # Errors
    /// When the installation is refused.
    pub async fn stage(&self) -> anyhow::Result<Stage> {
        Stage::over_tls(Some(self.plane.admin_access())).await
    }

    /// Says where the logs are when a case went wrong.
    ///
    /// # Errors
    /// The case's own, with the folder of the logs.
    pub fn judge(&mut self, case: &str, ended: anyhow::Result<()>) -> anyhow::Result<()> {
        self.plane.check()?;
        ended.with_context(|| format!("{case}; logs are in {}", self.logs.0.display()))
    }

    /// Ends it and removes what it wrote.
    ///
    /// # Errors
    /// When its folder cannot be removed.
    pub fn end(self) -> anyhow::Result<()> {
        let Self { plane, logs } = self;
        drop(plane);
        let folder = &logs.0;
        std::fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))
    }
}
