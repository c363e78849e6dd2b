//! Locks that are left with the server before something happens to it. All that was answered must still be true after it.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use support::Reply;

use crate::ending;
use crate::flushes::PutOff;
use crate::link::Link;
use crate::settings::is_put_off;
use crate::token::Token;
use crate::world::World;

const LOCKS: u64 = 12;
const LIMIT: Duration = Duration::from_secs(20);
/// Leases that last over what happens.
const LEASES_MS: std::ops::Range<u64> = 60_000..90_000;
/// A lease is told in whole milliseconds, by a clock that may be adjusted.
const CLOCKS_MS: i64 = 5;
/// What looking at them is called in the figures.
pub const CHECK: &str = "locks left to be found again";
/// FLUSHALL would take most of them. So it comes only while one of so many is out.
const ONE_FLUSHED_OF: u8 = 4;
pub const FORGOTTEN: &str = "nothing that was answered is forgotten";

/// Locks of one client, with what it was told about them.
pub struct Deposit<'w> {
    database: u32,
    begun: Instant,
    locks: Vec<Left>,
    _flushes: Option<PutOff<'w>>,
}

/// What was found, and what is wrong with it; None where nothing can be said.
type Looked = Option<Result<(), String>>;

struct Left {
    name: String,
    token: Token,
    form: Form,
    lease_ms: u64,
    /// The lease began after `asked`, also when it was lengthened by a further hold, and before `told`.
    asked: Instant,
    told: Instant,
    fence: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Mutex,
    Reentrant { holds: i64 },
    Share,
}

impl<'w> Deposit<'w> {
    /// Takes locks that nobody else knows, some of them by waiting for them; None when it is told something else than that
    /// it has them, which a fault before explains.
    pub fn leave(world: &'w World, database: u32, random: &mut fastrand::Rng) -> Option<Self> {
        world.figures.begins(CHECK);
        let flushes = (random.u8(..ONE_FLUSHED_OF) > 0).then(|| world.flushes.put_off());
        let begun = Instant::now();
        let mut links = (world.connect(database, false)?, world.connect(database, false)?);
        let number = world.mint.fresh();
        let name = |index| format!("d{number}.{index}{}", world.suffix(database));
        let locks: Option<_> = (0..LOCKS).map(|index| leave_one(world, &mut links, name(index), random)).collect();
        Some(Self { database, begun, locks: locks?, _flushes: flushes })
    }

    /// Whether another server has the same of these locks as this one.
    pub fn is_the_same_on(&self, link: &mut Link, other: &mut Link) -> Result<(), String> {
        for left in &self.locks {
            let (here, there) = (ending::content(link, &left.name), ending::content(other, &left.name));
            if here != there {
                return Err(format!("{} is {here:?} here and {there:?} there", left.name));
            }
        }
        Ok(())
    }

    /// Whether everything may have been flushed since.
    pub fn is_flushed(&self, world: &World) -> bool {
        world.flushes.any_since(self.begun)
    }

    /// Finds every lock as it was, and gives it back; leases may have gained `gained` ms. Returns whether all of them were found:
    /// nothing is said where the connection is closed on the way, or everything was flushed.
    pub fn check(&self, world: &World, gained: RangeInclusive<i64>) -> bool {
        let look = |left: &Left, link: &mut Link| match left.is_kept(world, &gained, link)? {
            Ok(()) => left.is_given_back(world, link),
            wrong => Some(wrong),
        };
        let are_found = self.are_all(world, look);
        if are_found {
            world.figures.checked(CHECK);
        }
        are_found
    }

    /// Finds every lock held as it was. The holders do not ask for anything that a recovery period puts off.
    pub fn check_holders(&self, world: &World) -> bool {
        self.are_all(world, |left, link| left.is_kept(world, &(0..=0), link))
    }

    fn are_all(&self, world: &World, look: impl Fn(&Left, &mut Link) -> Looked) -> bool {
        let Some(mut link) = world.connect(self.database, false) else { return false };
        for left in &self.locks {
            let looked = look(left, &mut link);
            if self.is_flushed(world) {
                return false;
            }
            match looked {
                None => return false,
                Some(Ok(())) => {}
                Some(Err(what)) => {
                    let text = format!("{} of {}, {:?}: {what}", left.name, left.token, left.form);
                    world.court.charge(FORGOTTEN, text);
                    return false;
                }
            }
        }
        true
    }
}

fn leave_one(
    world: &World,
    (link, other): &mut (Link, Link),
    name: String,
    random: &mut fastrand::Rng,
) -> Option<Left> {
    let (token, lease_ms) = (world.mint.fresh(), random.u64(LEASES_MS));
    let form = match random.u8(..3) {
        0 => Form::Mutex,
        1 => Form::Reentrant { holds: random.i64(1..4) },
        _ => Form::Share,
    };
    let before = random.bool().then(|| world.mint.fresh());
    if let Some(before) = before {
        expect(other, &format!("LOCK.ACQUIRE {name} {before} PX {lease_ms}"), 1)?;
    }
    let asked = link.send(&[form.request(&name, token, lease_ms, 1, " BLOCK 5000")])?;
    if let Some(before) = before {
        expect(other, &format!("LOCK.RELEASE {name} {before}"), 0)?;
    }
    (link.receive(LIMIT)? == 1).then_some(())?;
    for hold in 2..=form.holds() {
        expect(link, &form.request(&name, token, lease_ms, hold, ""), hold)?;
    }
    let told = Instant::now();
    let Reply::Int(fence) = link.run(&format!("LOCK.FENCE {name} {token} f{name}")) else { return None };
    Some(Left { name, token, form, lease_ms, asked, told, fence })
}

fn expect(link: &mut Link, line: &str, reply: i64) -> Option<()> {
    (link.run(line) == reply).then_some(())
}

impl Form {
    fn holds(self) -> i64 {
        if let Self::Reentrant { holds } = self { holds } else { 1 }
    }

    fn request(self, name: &str, token: Token, lease_ms: u64, hold: i64, more: &str) -> String {
        match self {
            Self::Mutex => format!("LOCK.ACQUIRE {name} {token} PX {lease_ms}{more}"),
            Self::Reentrant { .. } => format!("LOCK.REENTER {name} {token} PX {lease_ms} HOLD {hold}{more}"),
            Self::Share => format!("LOCK.SHARE {name} {token} PX {lease_ms} LIMIT 1{more}"),
        }
    }
}

impl Left {
    /// Whether its holder has it, and nobody else gets it.
    fn is_kept(&self, world: &World, gained: &RangeInclusive<i64>, link: &mut Link) -> Looked {
        if let Some(what) = self.lease_is_off(gained, link)? {
            return Some(Err(what));
        }
        let (name, token, stranger) = (&self.name, self.token, world.mint.fresh());
        let line = format!("LOCK.ACQUIRE {name} {stranger} PX 1000");
        let reply = answer(world, link, &line)?;
        if reply != Reply::Nil {
            return Some(Err(format!("{line} is answered {reply:?}, not nil")));
        }
        let fence = answer(world, link, &format!("LOCK.FENCE {name} {token} f{name}"))?;
        if !matches!(fence, Reply::Int(number) if number > self.fence) {
            return Some(Err(format!("the fencing token after {} is {fence:?}", self.fence)));
        }
        Some(Ok(()))
    }

    /// Whether its holder may ask for it again, set its lease, and give it back.
    fn is_given_back(&self, world: &World, link: &mut Link) -> Looked {
        let (name, token, holds) = (&self.name, self.token, self.form.holds());
        let releases = (1..=holds).rev().map(|hold| (format!("LOCK.RELEASE {name} {token} HOLD {hold}"), hold - 1));
        // The same request again counts once.
        let again = (self.form.request(name, token, 1, holds, ""), holds);
        let lines = [again, (format!("LOCK.EXTEND {name} {token} PX 5000"), 5000)];
        for (line, expected) in lines.into_iter().chain(releases) {
            let reply = answer(world, link, &line)?;
            if reply != expected {
                return Some(Err(format!("{line} is answered {reply:?}, not {expected}")));
            }
        }
        link.run(&format!("DEL f{name}"));
        Some(Ok(()))
    }

    /// What is wrong with what remains of the lease; None when the connection is closed.
    fn lease_is_off(&self, gained: &RangeInclusive<i64>, link: &mut Link) -> Option<Option<String>> {
        let sent = link.send(&[format!("PTTL {}", self.name)])?;
        let reply = link.receive(LIMIT).filter(|reply| *reply != Reply::Closed)?;
        let received = Instant::now();
        let ms = |number: u128| i64::try_from(number).unwrap_or(i64::MAX);
        let remains = |span: Duration| ms(self.lease_ms.into()) - ms(span.as_millis());
        let least = remains(received - self.asked) + gained.start() - CLOCKS_MS;
        let most = remains(sent.saturating_duration_since(self.told)) + gained.end() + CLOCKS_MS;
        let is_right = matches!(reply, Reply::Int(ms) if (least..=most).contains(&ms));
        Some((!is_right).then(|| format!("{reply:?} ms remain of the lease, not {least} to {most}")))
    }
}

/// The answer to a line; None when the connection is closed, or the server refuses it because of a fault, or puts it off.
fn answer(world: &World, link: &mut Link, line: &str) -> Option<Reply> {
    let sent = Instant::now();
    let reply = link.run(line);
    let is_put_off = is_put_off(&reply) && world.settings.may_hold_back(sent, Instant::now());
    (reply != Reply::Closed && !world.is_refusal(&reply) && !is_put_off).then_some(reply)
}
