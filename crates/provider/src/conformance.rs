//! What every provider must do, as a suite that any of them can be put through.

use crate::{Claim, Created, Credentials, Deleted, Instance, Memory, Order, Owner, Provider};
use crate::{Retry, State, UserData};
use futures::future::BoxFuture;
use serde_json::Value;
use std::time::Duration;

/// The most calls that one creation or deletion may take.
const CALLS: usize = 500;
/// The pause after an error that asks for backoff.
const BACKOFF: Duration = Duration::from_secs(1);

/// A promise of the contract that a provider did not keep.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Violation(String);

/// A provider under test and how to order from it.
pub struct Subject<'a, P> {
    /// A new instance that knows nothing of earlier ones, as after a restart.
    pub provider: &'a dyn Fn() -> P,
    /// Parameters that can be fulfilled.
    pub parameters: Value,
    pub credentials: Credentials,
    /// Waits, by whatever clock the cloud under test runs on.
    pub sleep: &'a (dyn Fn(Duration) -> BoxFuture<'static, ()> + Sync),
}

impl<P: Provider> Subject<'_, P> {
    /// Puts the provider through the whole suite.
    ///
    /// # Errors
    /// The first [`Violation`].
    pub async fn run(&self) -> Result<(), Violation> {
        let first = self.order("conformance", "3f6d5b1c-0000-4000-8000-000000000001");
        // A name is no identity: the second machine has the same one.
        let second = self.order("conformance", "3f6d5b1c-0000-4000-8000-000000000002");
        let provider = (self.provider)();
        self.parameters_are_checked(&provider)?;
        hold(self.look(&provider, &first).await?.is_none(), "look finds a server before any")?;

        let (memory, made) = self.create(&provider, &first).await?;
        let (other_memory, other) = self.create(&provider, &second).await?;
        hold(made.state == State::Running, "a server that is done runs")?;
        hold(!made.addresses.is_empty(), "a server that is done has an address")?;
        hold(made.provider_id != other.provider_id, "two machines of one name have two servers")?;

        let (_, again) = self.create_from(&provider, &first, memory.clone()).await?;
        hold(again.provider_id == made.provider_id, "creating again leads to the same server")?;
        let restarted = (self.provider)();
        let (_, again) = self.create_from(&restarted, &first, memory.clone()).await?;
        hold(again.provider_id == made.provider_id, "so it does after a restart")?;
        let seen = self.look(&restarted, &first).await?;
        let seen = seen.map(|it| it.provider_id);
        hold(seen == Some(made.provider_id), "look finds the server")?;
        self.holds(&restarted, &first, true).await?;

        self.delete(&restarted, &first.claim, &memory).await?;
        hold(self.look(&provider, &first).await?.is_none(), "look finds a deleted server")?;
        self.holds(&provider, &first, false).await?;
        let survivor = self.look(&provider, &second).await?.map(|it| it.provider_id);
        hold(survivor == Some(other.provider_id), "the other machine's server is untouched")?;

        // Nothing of the description resolves any more, and the machine must still go.
        let mut broken = second.claim.clone();
        broken.parameters = Value::Null;
        self.delete(&provider, &broken, &other_memory).await?;
        self.holds(&provider, &second, false).await?;
        self.delete(&provider, &broken, &other_memory).await
    }

    fn order(&self, name: &str, machine: &str) -> Order {
        let owner = Owner {
            cluster: "3f6d5b1c-0000-4000-8000-00000000000c".to_owned(),
            machine: machine.to_owned(),
            name: name.to_owned(),
        };
        let credentials = self.credentials.clone();
        let claim = Claim { owner, credentials, parameters: self.parameters.clone(), place: None };
        Order { claim, user_data: UserData(b"#cloud-config\n".to_vec()) }
    }

    fn parameters_are_checked(&self, provider: &P) -> Result<(), Violation> {
        let good = provider.check(&self.parameters);
        hold(good.is_ok(), &format!("good parameters are refused: {good:?}"))?;
        hold(provider.check(&Value::Null).is_err(), "null is accepted as parameters")
    }

    async fn look(&self, provider: &P, order: &Order) -> Result<Option<Instance>, Violation> {
        provider.look(&order.claim).await.map_err(|error| Violation(format!("look: {error}")))
    }

    async fn create(&self, provider: &P, order: &Order) -> Result<(Memory, Instance), Violation> {
        let (memory, instance) = self.create_from(provider, order, Memory::default()).await?;
        let size: usize = memory.0.iter().map(|(key, value)| key.len() + value.len()).sum();
        hold(size < 1024, "the memory is larger than a kilobyte")?;
        Ok((memory, instance))
    }

    async fn create_from(
        &self,
        provider: &P,
        order: &Order,
        mut memory: Memory,
    ) -> Result<(Memory, Instance), Violation> {
        for _ in 0..CALLS {
            match provider.create(order, &memory).await {
                Ok(Created::Record(next)) => memory = next,
                Ok(Created::Waiting { memory: next, after, .. }) => {
                    memory = next;
                    (self.sleep)(after).await;
                }
                Ok(Created::Done { memory, instance }) => return Ok((memory, instance)),
                Err(error) => self.pause(&error).await?,
            }
        }
        Err(Violation(format!("a creation takes more than {CALLS} calls")))
    }

    async fn delete(&self, provider: &P, claim: &Claim, memory: &Memory) -> Result<(), Violation> {
        for _ in 0..CALLS {
            match provider.delete(claim, memory).await {
                Ok(Deleted::Gone) => return Ok(()),
                Ok(Deleted::Waiting { after, .. }) => (self.sleep)(after).await,
                Err(error) => self.pause(&error).await?,
            }
        }
        Err(Violation(format!("a deletion takes more than {CALLS} calls")))
    }

    async fn pause(&self, error: &crate::Error) -> Result<(), Violation> {
        match error.retry() {
            Retry::OnChange => Err(Violation(format!("a good order is refused: {error}"))),
            Retry::After(wait) => {
                (self.sleep)(wait).await;
                Ok(())
            }
            Retry::Backoff => {
                (self.sleep)(BACKOFF).await;
                Ok(())
            }
        }
    }

    /// Whether anything of the machine is among the cluster's holdings.
    async fn holds(&self, provider: &P, order: &Order, expected: bool) -> Result<(), Violation> {
        let owner = &order.claim.owner;
        let found = provider.holdings(&self.credentials, &owner.cluster).await;
        let found = found.map_err(|error| Violation(format!("holdings: {error}")))?;
        let mut ours = found.iter().filter(|it| it.owner.machine == owner.machine).peekable();
        let kinds: Vec<&str> = found.iter().map(|it| it.kind.as_str()).collect();
        hold(
            ours.peek().is_some() == expected,
            &format!(
                "holdings of machine {}: expected {expected}, all are {kinds:?}",
                owner.machine
            ),
        )
    }
}

fn hold(kept: bool, promise: &str) -> Result<(), Violation> {
    if kept { Ok(()) } else { Err(Violation(promise.to_owned())) }
}
