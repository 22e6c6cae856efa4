//! Where a machine's resources are: a project, and a region of it.
//!
//! A Secret may lead to another project one day, and a MachineClass name another region. There nothing would be found of
//! the machine, and that would be taken for its end.

use crate::{fault::Fault, session::Session};
use drover_provider::Error;

/// The place that a session works in, to be noted before anything is made there.
pub async fn of(session: &Session) -> Result<String, Fault> {
    Ok(format!("{}/{}", session.project().await?, session.region()))
}

/// The region of a place, if one was asked for.
pub fn region(place: &str) -> Option<&str> {
    place.split_once('/').map(|(_, region)| region).filter(|region| !region.is_empty())
}

/// Whether a session leads to the project of a place.
///
/// # Errors
/// [`Error::Unauthenticated`] when it leads to another.
pub async fn check(place: &str, session: &Session) -> Result<(), Error> {
    let noted = place.split('/').next().unwrap_or_default();
    let project = session.project().await?;
    if noted == project {
        return Ok(());
    }
    Err(Error::Unauthenticated(format!(
        "they lead to project {project}, but what was made of this machine is in project {noted}; give credentials of \
         that one"
    )))
}
