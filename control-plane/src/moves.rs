//! Audit sources that move between replicas: this one tells the others which have come, and hears which have left.

use std::time::Duration;

use credence_evidence::{Arrivals, Intake};
use credence_revocation::Moves;
use credence_runtime::supervision::BackgroundTask;

/// The tasks of a replica whose ledger has this origin.
pub(crate) fn tasks(moves: Moves, arrivals: Arrivals, intake: Intake, ledger: String) -> [BackgroundTask; 2] {
    let (told, origin) = (moves.clone(), ledger.clone());
    let tell = async move {
        loop {
            let sources = arrivals.next(Moves::AT_ONCE).await;
            match told.claim(&sources, &origin).await {
                Ok(()) => {
                    arrivals.told(&sources);
                    tokio::time::sleep(BETWEEN).await;
                }
                Err(error) => {
                    tracing::warn!(%error, sources = sources.len(), "the other replicas do not know yet which audit sources have come");
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    };
    let hear = async move {
        loop {
            for (source, claimed) in moves.claimed().await {
                if claimed != ledger {
                    intake.depart(&source, &claimed).await;
                }
            }
        }
    };
    [
        ("the word to other replicas of audit sources", Box::pin(tell)),
        ("the word from other replicas of audit sources", Box::pin(hear)),
    ]
}

/// However often sources move, the store gets few writes for it.
const BETWEEN: Duration = Duration::from_secs(1);
/// Until the others are told again.
const AGAIN: Duration = Duration::from_secs(1);
