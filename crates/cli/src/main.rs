//! Drover drives herds of Kubernetes nodes: one binary for the manager, the try-out world and the manifests.

mod command;
mod probe;

use anyhow::Context;
use clap::{Parser, Subcommand};
use std::io::IsTerminal;
use std::process::ExitCode;

/// Drives herds of Kubernetes nodes on OpenStack.
#[derive(Parser)]
#[command(version, about, max_term_width = 100)]
struct Drover {
    #[command(subcommand)]
    command: Command,
    /// What is logged, such as `info` or `drover_controllers=debug`.
    #[arg(long, global = true, env = "DROVER_LOG", default_value = "warn")]
    log: String,
    /// How it is logged.
    #[arg(long, global = true, default_value = "text")]
    log_format: LogFormat,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

#[derive(Subcommand)]
enum Command {
    /// Run an API server, a cloud, nodes and Drover on this machine, on loopback
    Dev(command::dev::Args),
    /// Run one part of that world alone, for other clients
    Lab(command::lab::Args),
    /// Run the controllers against a Kubernetes API server
    Manager(command::manager::Args),
    /// Print the Kubernetes objects that Drover needs
    Manifests(command::manifests::Args),
}

fn main() -> ExitCode {
    match run(Drover::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("drover: {}", told(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(drover: Drover) -> anyhow::Result<()> {
    start_log(&drover.log, drover.log_format)?;
    // Two libraries bring TLS; they must agree on who does the arithmetic.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match drover.command {
        Command::Manifests(args) => command::manifests::run(&args),
        Command::Dev(args) => on_runtime(command::dev::run(args)),
        Command::Lab(args) => on_runtime(command::lab::run(args)),
        Command::Manager(args) => on_runtime(command::manager::run(args)),
    }
}

fn on_runtime(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(work)
}

/// An error with its causes, each said once: some libraries repeat the cause in their own words.
fn told(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let refused = match cause.downcast_ref::<kube::Error>() {
            Some(kube::Error::Api(status)) => Some(status.message.clone()),
            _ => None,
        };
        let last = refused.is_some();
        let said = refused.unwrap_or_else(|| cause.to_string());
        if !text.contains(said.trim()) {
            let joint = if text.is_empty() { "" } else { ": " };
            text.extend([joint, said.trim()]);
        }
        if last {
            break;
        }
    }
    text
}

/// Logs go to standard error, in colour on a terminal alone (<https://no-color.org>).
fn start_log(filter: &str, format: LogFormat) -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_new(filter)
        .with_context(|| format!("--log {filter}: give a level or target=level, such as info"))?;
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(!plain && std::io::stderr().is_terminal());
    match format {
        LogFormat::Text => log.with_target(true).init(),
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    #[test]
    fn an_error_says_each_cause_once() {
        let refused = kube::Error::Api(Status::failure("no such namespace", "NotFound").boxed());
        let error = anyhow::Error::new(refused).context("reading namespace kube-system");
        assert_eq!(told(&error), "reading namespace kube-system: no such namespace");
    }

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Drover::command().debug_assert();
    }
}
