//! One file for each verb of the command line.

mod account;
mod demo;
pub mod dev;
mod farewell;
mod folder;
mod install;
pub mod lab;
pub mod manager;
pub mod manifests;
mod narrate;
mod nodes;
mod os_cloud;

/// Parses `--speed`: how many times faster than life.
fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if speed > 0.0 && speed.is_finite() => Ok(speed),
        _ => Err("give a number greater than 0, such as 10".to_owned()),
    }
}
