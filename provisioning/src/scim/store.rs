//! The users, on disk: crash-safe, and indexed by id, name, external id and subject.
//!
//! Losing data here does not undo revocations. They are in the revocation log, and stay in force until the identity
//! provider creates or activates the user again.

use std::path::Path;

use redb::{Error, ReadableTable as _, TableDefinition, WriteTransaction};

use super::filter::Key;
use super::user::User;
use super::value::text;
use credence_storage::database::DatabaseFile;
use credence_storage::folder_lock::FolderWatch;

/// All users of all realms.
#[derive(Debug)]
pub(crate) struct Store {
    file: DatabaseFile,
    max_users: u64,
    max_user_bytes: usize,
}

/// Why the store refused an operation. Nothing has changed then, unless its file failed or its folder is lost.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    #[error("the file of users: {0}")]
    Database(#[from] Error),
    #[error("there are {limit} users already, and no more may be created (limits: --scim-users)")]
    Full { limit: u64 },
    #[error("this user would take {found} bytes; {limit} are allowed")]
    TooLarge { found: usize, limit: usize },
    #[error("the realm has a user with that {what} already")]
    Taken { what: &'static str },
}

// === impl Store ===

impl Store {
    /// Opens the file, or creates it, in the watched folder.
    pub(crate) fn open(path: &Path, folder: FolderWatch, max_users: u64, max_user_bytes: usize) -> Result<Self, Error> {
        Ok(Self {
            file: DatabaseFile::open(path, CACHE_BYTES, folder, prepare)?,
            max_users,
            max_user_bytes,
        })
    }

    pub(crate) fn user(&self, realm: &str, id: &str) -> Result<Option<User>, Error> {
        self.file.read(|transaction| {
            let found = transaction.open_table(USERS)?.get((realm, id))?;
            found.map(|bytes| read(realm, id, bytes.value())).transpose()
        })
    }

    /// The ids of the users with this key. Only an external id may have several.
    pub(crate) fn find(&self, realm: &str, key: Key<'_>) -> Result<Vec<String>, Error> {
        let unique = |table: TableDefinition<'_, (&str, &str), &str>, key: &str| {
            self.file.read(|transaction| {
                let found = transaction.open_table(table)?.get((realm, key))?;
                Ok(found.map(|id| id.value().to_owned()).into_iter().collect())
            })
        };
        match key {
            Key::Id(id) => Ok(vec![id.to_owned()]),
            Key::UserName(name) => unique(USER_NAMES, &name.to_lowercase()),
            Key::Subject(subject) => unique(SUBJECTS, subject),
            Key::ExternalId(external_id) => self.file.read(|transaction| {
                let table = transaction.open_table(EXTERNAL_IDS)?;
                let range = table.range((realm, external_id, "")..=(realm, external_id, LAST_ID))?;
                range.map(|entry| Ok(entry?.0.value().2.to_owned())).collect()
            }),
        }
    }

    /// Passes every user of the realm to `visit`, in the order of creation, until it returns false. Returns whether all
    /// were visited.
    pub(crate) fn each(&self, realm: &str, mut visit: impl FnMut(User) -> bool) -> Result<bool, Error> {
        self.file.read(|transaction| {
            let users = transaction.open_table(USERS)?;
            for entry in users.range((realm, "")..=(realm, LAST_ID))? {
                let (key, bytes) = entry?;
                if !visit(read(realm, key.value().1, bytes.value())?) {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    /// Returns `count` users of the realm, after the first `skip`.
    pub(crate) fn page(&self, realm: &str, skip: usize, count: usize) -> Result<Vec<User>, Error> {
        self.file.read(|transaction| {
            let users = transaction.open_table(USERS)?;
            let range = users.range((realm, "")..=(realm, LAST_ID))?;
            let page = range.skip(skip).take(count).map(|entry| {
                let (key, bytes) = entry?;
                read(realm, key.value().1, bytes.value())
            });
            page.collect()
        })
    }

    pub(crate) fn count(&self, realm: &str) -> Result<u64, Error> {
        self.file.read(|transaction| {
            let count = transaction.open_table(COUNTS)?.get(realm)?;
            Ok(count.map_or(0, |count| count.value()))
        })
    }

    /// Whether [`Store::put`] would accept the user. Checked before the revocation that precedes it.
    pub(crate) fn check(&self, realm: &str, user: &User) -> Result<(), StoreError> {
        let found = encode(user).len();
        if found > self.max_user_bytes {
            return Err(StoreError::TooLarge {
                found,
                limit: self.max_user_bytes,
            });
        }
        let taken = |key, what| match self.find(realm, key)?.iter().any(|id| *id != user.id) {
            true => Err(StoreError::Taken { what }),
            false => Ok(()),
        };
        taken(Key::UserName(user.user_name()), "userName")?;
        if let Some(subject) = &user.subject {
            taken(Key::Subject(subject), "name as a principal")?;
        }
        match self.user(realm, &user.id)?.is_some() || self.total()? < self.max_users {
            true => Ok(()),
            false => Err(StoreError::Full { limit: self.max_users }),
        }
    }

    fn total(&self) -> Result<u64, Error> {
        self.file.read(|transaction| {
            let mut total = 0;
            for count in transaction.open_table(COUNTS)?.iter()? {
                total += count?.1.value();
            }
            Ok(total)
        })
    }

    /// Stores the user in place of the earlier version. Durable on return.
    pub(crate) fn put(&self, realm: &str, user: &User) -> Result<(), StoreError> {
        self.check(realm, user)?;
        Ok(self.write(realm, &user.id, Some(user))?)
    }

    /// Removes the user. Durable on return.
    pub(crate) fn remove(&self, realm: &str, id: &str) -> Result<(), StoreError> {
        Ok(self.write(realm, id, None)?)
    }

    fn write(&self, realm: &str, id: &str, user: Option<&User>) -> Result<(), Error> {
        self.file.write(|transaction| {
            let mut users = transaction.open_table(USERS)?;
            let mut user_names = transaction.open_table(USER_NAMES)?;
            let mut external_ids = transaction.open_table(EXTERNAL_IDS)?;
            let mut subjects = transaction.open_table(SUBJECTS)?;
            let mut counts = transaction.open_table(COUNTS)?;
            let before = users
                .get((realm, id))?
                .map(|bytes| read(realm, id, bytes.value()))
                .transpose()?;
            if let Some(before) = &before {
                user_names.remove((realm, before.user_name().to_lowercase().as_str()))?;
                if let Some(external_id) = text(&before.attributes, "externalId") {
                    external_ids.remove((realm, external_id, id))?;
                }
                if let Some(subject) = &before.subject {
                    subjects.remove((realm, subject.as_str()))?;
                }
            }
            match user {
                Some(user) => {
                    users.insert((realm, id), encode(user).as_slice())?;
                    user_names.insert((realm, user.user_name().to_lowercase().as_str()), id)?;
                    if let Some(external_id) = text(&user.attributes, "externalId") {
                        external_ids.insert((realm, external_id, id), ())?;
                    }
                    if let Some(subject) = &user.subject {
                        subjects.insert((realm, subject.as_str()), id)?;
                    }
                }
                None => {
                    users.remove((realm, id))?;
                }
            }
            let count = counts.get(realm)?.map_or(0, |count| count.value());
            let count = match (before.is_some(), user.is_some()) {
                (false, true) => count + 1,
                (true, false) => count.saturating_sub(1),
                _ => count,
            };
            counts.insert(realm, count)?;
            Ok(())
        })
    }
}

fn prepare(transaction: &WriteTransaction) -> Result<(), Error> {
    transaction.open_table(USERS)?;
    transaction.open_table(USER_NAMES)?;
    transaction.open_table(EXTERNAL_IDS)?;
    transaction.open_table(SUBJECTS)?;
    transaction.open_table(COUNTS)?;
    Ok(())
}

fn encode(user: &User) -> Vec<u8> {
    // Strings, booleans and lists of them, which serde_json always accepts.
    serde_json::to_vec(user).unwrap_or_default()
}

fn read(realm: &str, id: &str, bytes: &[u8]) -> Result<User, Error> {
    serde_json::from_slice(bytes)
        .map_err(|_| Error::Corrupted(format!("the user {id:?} of the realm {realm:?} cannot be read")))
}

/// By realm and id.
const USERS: TableDefinition<'_, (&str, &str), &[u8]> = TableDefinition::new("users");
/// Realm and name in lower case, to the id.
const USER_NAMES: TableDefinition<'_, (&str, &str), &str> = TableDefinition::new("user_names");
const EXTERNAL_IDS: TableDefinition<'_, (&str, &str, &str), ()> = TableDefinition::new("external_ids");
const SUBJECTS: TableDefinition<'_, (&str, &str), &str> = TableDefinition::new("subjects");
/// The number of users in each realm.
const COUNTS: TableDefinition<'_, &str, u64> = TableDefinition::new("counts");
/// Sorts after every id, because ids have hexadecimal digits only.
const LAST_ID: &str = "g";
const CACHE_BYTES: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::value::Value;
    use super::*;

    fn user(id: &str, name: &str) -> User {
        let attributes = [("userName", Value::text(name)), ("externalId", Value::text("x"))];
        let attributes = attributes.map(|(name, value)| (name.to_owned(), value)).into();
        User::new(id.to_owned(), attributes, Some(name.to_owned()))
    }

    fn open(folder: &Path, max_users: u64) -> Store {
        Store::open(&folder.join("users"), FolderWatch::of_nothing(), max_users, 1024).unwrap()
    }

    #[test]
    fn users_survive_and_are_found_by_all_their_keys_in_their_realm_only() {
        let folder = tempfile::tempdir().unwrap();
        let alice = user("1", "Alice");
        open(folder.path(), 9).put("r", &alice).unwrap();
        let store = open(folder.path(), 9);
        assert_eq!(store.user("r", "1").unwrap(), Some(alice));
        for key in [Key::UserName("ALICE"), Key::ExternalId("x"), Key::Subject("Alice")] {
            assert_eq!(store.find("r", key).unwrap(), ["1"], "{key:?}");
            assert!(store.find("q", key).unwrap().is_empty(), "{key:?}");
        }
        assert!(store.find("r", Key::Subject("alice")).unwrap().is_empty());
        assert_eq!((store.count("r").unwrap(), store.count("q").unwrap()), (1, 0));
    }

    #[test]
    fn old_keys_are_forgotten_with_a_change_and_all_with_the_user() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path(), 9);
        store.put("r", &user("1", "alice")).unwrap();
        store.put("r", &user("1", "bob")).unwrap();
        assert!(store.find("r", Key::UserName("alice")).unwrap().is_empty());
        assert_eq!(store.count("r").unwrap(), 1);
        store.remove("r", "1").unwrap();
        for key in [Key::UserName("bob"), Key::ExternalId("x"), Key::Subject("bob")] {
            assert!(store.find("r", key).unwrap().is_empty(), "{key:?}");
        }
        assert_eq!(store.count("r").unwrap(), 0);
    }

    #[test]
    fn names_are_unique_and_the_number_and_size_of_users_are_limited() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path(), 2);
        store.put("r", &user("1", "alice")).unwrap();
        assert!(matches!(
            store.put("r", &user("2", "ALICE")),
            Err(StoreError::Taken { .. })
        ));
        store.put("q", &user("2", "alice")).unwrap();
        assert!(matches!(
            store.put("r", &user("3", "bob")),
            Err(StoreError::Full { .. })
        ));
        store.put("r", &user("1", "alicia")).unwrap();
        let long = user("1", &"x".repeat(1024));
        assert!(matches!(store.put("r", &long), Err(StoreError::TooLarge { .. })));
    }

    #[test]
    fn users_are_changed_again_after_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path(), 9);
        store.put("r", &user("1", "alice")).unwrap();
        let fail = || store.file.write(|_| Err::<(), _>(Error::PreviousIo));
        fail().unwrap_err();
        store.put("r", &user("2", "bob")).unwrap();
        fail().unwrap_err();
        store.put("r", &user("3", "carol")).unwrap_err();
        store.remove("r", "1").unwrap_err();
        store.user("r", "1").unwrap_err();
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(store.count("r").unwrap(), 2);
        store.remove("r", "1").unwrap();
        assert_eq!(store.find("r", Key::UserName("bob")).unwrap(), ["2"]);
    }

    #[test]
    fn pages_follow_the_order_of_creation() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path(), 9);
        for (id, name) in [("3", "c"), ("1", "a"), ("2", "b")] {
            store.put("r", &user(id, name)).unwrap();
        }
        store.put("s", &user("0", "z")).unwrap();
        let names = |skip, count| -> Vec<String> {
            let page = store.page("r", skip, count).unwrap();
            page.iter().map(|user| user.user_name().to_owned()).collect()
        };
        assert_eq!(names(0, 9), ["a", "b", "c"]);
        assert_eq!(names(1, 1), ["b"]);
        assert!(names(3, 9).is_empty());
    }
}
