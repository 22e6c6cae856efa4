//! What a cloud must do for Drover: the provider trait, what it is told and what it answers.
//!
//! A provider knows nothing of Kubernetes. It is given an [`Order`] (who the server is for and what
//! it should be) and its own [`Memory`] from the last call, does a bounded amount of work, and says
//! how far it came. It never waits for a server to boot: waiting is an answer.

mod clock;
pub mod conformance;
mod error;
mod secret;

pub use clock::Clock;
pub use error::{Error, Retry};
pub use secret::Credentials;

use futures::future::BoxFuture;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, net::IpAddr, time::Duration};

/// For whom a resource exists. Every cloud resource carries `cluster` and `machine` from its creation,
/// and nothing is ever deleted that does not carry both.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Owner {
    /// The identity of the whole herd: one value for all that one manager makes.
    pub cluster: String,
    /// The identity of the one machine: never used again, unlike its name.
    pub machine: String,
    /// The name of the server and its host name. Not unique in a cloud, not an identity.
    pub name: String,
}

/// What a provider needs to find and delete the resources of one machine.
#[derive(Clone, Debug)]
pub struct Claim {
    pub owner: Owner,
    pub credentials: Credentials,
    /// What the provider's own parser makes of the machine's description; see the provider's crate.
    pub parameters: serde_json::Value,
    /// What the machine's memory says under [`PLACE`]: its resources are there and nowhere else, whatever credentials
    /// and parameters say by now.
    pub place: Option<String>,
}

/// The key of a [`Memory`] under which a provider notes where the machine's resources are, in its own words.
pub const PLACE: &str = "place";

/// What a provider needs to make a server.
#[derive(Clone, Debug)]
pub struct Order {
    pub claim: Claim,
    /// The bytes the server boots from, not yet base64. Secret: it holds a token.
    pub user_data: UserData,
}

/// User-data that does not print itself.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct UserData(pub Vec<u8>);

impl std::fmt::Debug for UserData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UserData({} bytes)", self.0.len())
    }
}

/// What a provider wants to be told again in its next call. The caller keeps it where it survives a
/// restart; it is no secret and stays under a kilobyte. Empty at a machine's birth.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Memory(pub BTreeMap<String, String>);

/// How far a creation came.
#[derive(Clone, Debug, PartialEq)]
pub enum Created {
    /// Write the memory down where it survives a restart, then call again: the next call does what
    /// must not be done twice. Nothing was made in this call.
    Record(Memory),
    /// Under way. Call again after the time given, or sooner.
    Waiting { memory: Memory, waits_for: String, after: Duration },
    /// The server runs and has all that was ordered.
    Done { memory: Memory, instance: Instance },
}

/// How far a deletion came.
#[derive(Clone, Debug, PartialEq)]
pub enum Deleted {
    /// Under way. Call again after the time given, or sooner.
    Waiting { waits_for: String, after: Duration },
    /// A live look found nothing left that carries both marks of the owner.
    Gone,
}

/// A server as the cloud showed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    /// As the Node will carry it in `spec.providerID`, such as `openstack:///3f1c..`.
    pub provider_id: String,
    pub name: String,
    pub state: State,
    /// Fixed addresses first, in the order of the networks.
    #[serde(default)]
    pub addresses: Vec<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    pub created: Timestamp,
}

/// What a server is doing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    Building,
    Running,
    Stopped,
    Deleting,
    /// It will not come up by itself; the cloud's words.
    Failed {
        message: String,
    },
}

/// An address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Address {
    pub address: IpAddr,
    /// Reachable from outside the cluster's network (a floating IP).
    pub external: bool,
}

/// A cloud resource that carries a cluster's mark.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holding {
    /// The cloud's word: `server`, `port`, `volume`, `floatingip`.
    pub kind: String,
    pub id: String,
    pub owner: Owner,
    pub created: Option<Timestamp>,
}

/// A cloud. Every call is safe to repeat and safe to lose: the next one begins with a look.
pub trait Provider: Send + Sync + 'static {
    /// Checks the parameters alone, without a call to the cloud.
    ///
    /// # Errors
    /// [`Error::Invalid`] that names field and value.
    fn check(&self, parameters: &serde_json::Value) -> Result<(), Error>;

    /// Goes on with making the server of this order, from wherever the last call came to.
    fn create<'a>(
        &'a self,
        order: &'a Order,
        memory: &'a Memory,
    ) -> BoxFuture<'a, Result<Created, Error>>;

    /// Goes on with deleting all that carries both marks of the owner. Works without parameters that
    /// still resolve: a vanished image must not keep a machine alive.
    fn delete<'a>(
        &'a self,
        claim: &'a Claim,
        memory: &'a Memory,
    ) -> BoxFuture<'a, Result<Deleted, Error>>;

    /// A live look at the server, past all caches. `None` when the cloud has none with both marks.
    fn look<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Option<Instance>, Error>>;

    /// All that carries the cluster's mark, in order.
    fn holdings<'a>(
        &'a self,
        credentials: &'a Credentials,
        cluster: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Holding>, Error>>;
}
