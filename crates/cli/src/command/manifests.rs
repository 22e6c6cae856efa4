//! `drover manifests`: the objects Drover needs, as YAML for `kubectl apply -f -`.

use anyhow::Context;
use serde::Serialize;
use std::io::Write;

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// The CustomResourceDefinitions of the kinds Drover serves
    Crds,
    /// The ServiceAccount of the manager and exactly the rights it uses
    Rbac {
        /// A namespace with Secrets that machines refer to for their credentials, besides kube-system; repeatable
        #[arg(long, value_name = "NAMESPACE")]
        credentials_namespace: Vec<String>,
    },
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let yaml = match &args.what {
        What::Crds => documents(&drover_api::crds())?,
        What::Rbac { credentials_namespace } => {
            documents(&drover_controllers::rbac::objects(credentials_namespace))?
        }
    };
    match std::io::stdout().write_all(yaml.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("writing to standard output"),
    }
}

fn documents<T: Serialize>(objects: &[T]) -> anyhow::Result<String> {
    let mut text = String::new();
    for object in objects {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(object)?);
    }
    Ok(text)
}
