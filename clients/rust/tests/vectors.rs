//! Plays clients/vectors/*.transcript: this program is the driver, too.

use std::collections::HashMap;
use std::env;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis_lock_client::{Error, Guard, Guards, Lock, Locks, redis, several};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// What a step came to: its outcome, or the error of a lock or of the work.
enum Failure {
    Lock(Error),
    Work,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

type Outcome = Result<String, Failure>;

/// What the steps have in common.
#[derive(Default)]
struct State {
    guards: HashMap<String, Arc<Guard>>,
    severals: HashMap<String, Arc<Guards>>,
    tasks: HashMap<String, Vec<JoinHandle<()>>>,
    ends: HashMap<String, oneshot::Sender<bool>>,
}

#[derive(Clone)]
struct Driver {
    locks: Locks,
    state: Arc<Mutex<State>>,
}

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    if env::var_os("DRIVER").is_some() {
        tokio::runtime::Runtime::new().expect("a runtime").block_on(drive(&args[0]));
    } else if args.is_empty() {
        let player = concat!(env!("CARGO_MANIFEST_DIR"), "/../vectors/player.py");
        let mut command = Command::new("python3");
        command.args([player, "--"]).arg(env::current_exe().expect("this program")).env("DRIVER", "yes");
        assert!(command.status().expect("python3").success());
    }
}

async fn drive(port: &str) {
    let user = env::var("DRIVER_USER").unwrap_or_default();
    let client = redis::Client::open(format!("redis://{user}127.0.0.1:{port}")).expect("an address");
    let locks = Locks::new(client).await.expect("a server that replies");
    let driver = Driver { locks, state: Arc::default() };
    println!("ready");
    let mut lines = BufReader::new(stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let (id, of_task) = (words[1].clone(), driver.clone());
        // Its task is noted before it runs.
        let mut state = driver.state();
        let task = tokio::spawn(async move {
            drop(of_task.state());
            match of_task.step(&words).await {
                Ok(outcome) if outcome.is_empty() => {}
                Ok(outcome) if outcome == "unsupported" => println!("unsupported"),
                Ok(outcome) => println!("{} {outcome}", words[1]),
                Err(failure) => println!("{} {}", words[1], class(&failure)),
            }
        });
        state.tasks.entry(id).or_default().push(task);
    }
}

fn class(failure: &Failure) -> &'static str {
    match failure {
        Failure::Work => "failed",
        Failure::Lock(Error::Timeout(_)) => "timeout",
        Failure::Lock(Error::Lost(_)) => "error lost",
        Failure::Lock(Error::QueueFull(_)) => "error full",
        Failure::Lock(Error::ModuleNeeded(..)) => "error module",
        Failure::Lock(Error::Connection(..)) => "error connection",
        Failure::Lock(Error::Argument(..)) => "error argument",
        Failure::Lock(_) => "error server",
    }
}

impl Driver {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn guard(&self, id: &str) -> Arc<Guard> {
        self.state().guards[id].clone()
    }

    fn keep(&self, id: &str, guard: Guard) {
        self.state().guards.insert(id.to_owned(), Arc::new(guard));
    }

    /// Takes a guard, after the earlier steps with it, which watch it, have ended.
    async fn taken(&self, id: &str) -> Guard {
        self.end_earlier(id).await;
        Arc::into_inner(self.state().guards.remove(id).expect("a guard")).expect("the last user")
    }

    /// Ends the earlier steps; the last one is that which asks.
    async fn end_earlier(&self, id: &str) {
        let mut tasks = self.state().tasks.remove(id).unwrap_or_default();
        tasks.pop();
        for task in tasks {
            task.abort();
            let _ = task.await;
        }
    }

    fn lock(&self, name: &str, options: &[String]) -> Lock {
        options.iter().fold(self.locks.lock(name), |lock, option| {
            let (word, value) = option.split_once('=').unwrap_or((option, ""));
            let ms = || Duration::from_millis(value.parse().expect("milliseconds"));
            let number = || value.parse().expect("a number");
            match word {
                "lease" => lock.lease(ms()),
                "wait" => lock.wait(ms()),
                "permits" => lock.permits(number()),
                "max_waiters" => lock.max_waiters(number()),
                "label" => lock.label(value),
                "session" => lock.session(),
                "renew" => lock.renew(),
                "shared" => lock.shared(),
                _ => lock.reentrant("owner"),
            }
        })
    }

    async fn step(&self, words: &[String]) -> Outcome {
        let (step, id, name) = (words[0].as_str(), words[1].as_str(), words.get(2).map_or("", String::as_str));
        let options = words.get(3..).unwrap_or_default();
        match step {
            "acquire" => self.keep(id, self.lock(name, options).acquire().await?),
            "try" => match self.lock(name, options).try_acquire().await? {
                Some(guard) => self.keep(id, guard),
                None => return Ok("busy".to_owned()),
            },
            "attach" => self.keep(id, self.lock(name, &options[1..]).attach(options[0].as_str()).await?),
            "block" => return self.block(id, self.lock(name, options)).await,
            "end" | "fail" => {
                let end = self.state().ends.remove(id);
                // The work may have been dropped.
                let _ = end.map(|end| end.send(step == "end"));
                return Ok(String::new());
            }
            "release" => {
                self.release(id).await?;
                return Ok("released".to_owned());
            }
            "extend" => {
                self.guard(id).extend(Duration::from_millis(name.parse().expect("milliseconds"))).await?;
                return Ok("extended".to_owned());
            }
            "fence" => return Ok(format!("fence {}", self.guard(id).fence().await?)),
            "watch" => {
                self.lost(id).await;
                return Ok("lost".to_owned());
            }
            "cancel" => {
                self.end_earlier(id).await;
                return Ok("cancelled".to_owned());
            }
            "detach" => return Ok(format!("token {}", self.taken(id).await.detach())),
            "several" => self.several(id, name, options).await?,
            "observe" => {
                let mut observer = self.locks.observe(name);
                loop {
                    println!("{id} leader {}", observer.next().await?.as_deref().unwrap_or("none"));
                }
            }
            "repeat" => return self.repeat(name, &options[0], &options[1..]).await,
            _ => return Ok("unsupported".to_owned()),
        }
        Ok("held".to_owned())
    }

    async fn several(&self, id: &str, names: &str, options: &[String]) -> Result<(), Failure> {
        let (wait, others): (Vec<_>, Vec<_>) = options.iter().cloned().partition(|option| option.starts_with("wait="));
        let mut locks = several(names.split(',').map(|name| self.lock(name, &others)));
        if let Some(ms) = wait.first().and_then(|wait| wait["wait=".len()..].parse().ok()) {
            locks = locks.wait(Duration::from_millis(ms));
        }
        let guards = locks.acquire().await?;
        self.state().severals.insert(id.to_owned(), Arc::new(guards));
        Ok(())
    }

    async fn release(&self, id: &str) -> Result<(), Failure> {
        self.end_earlier(id).await;
        let several = self.state().severals.remove(id);
        match several {
            Some(guards) => Arc::into_inner(guards).expect("the last user").release().await?,
            None => self.taken(id).await.release().await?,
        }
        Ok(())
    }

    async fn lost(&self, id: &str) {
        let several = self.state().severals.get(id).cloned();
        match several {
            Some(guards) => guards.lost().await,
            None => self.guard(id).lost().await,
        }
    }

    async fn block(&self, id: &str, lock: Lock) -> Outcome {
        let (end, ended) = oneshot::channel();
        self.state().ends.insert(id.to_owned(), end);
        let work = async |_: &Guard| {
            println!("{id} held");
            if ended.await == Ok(true) { Ok(()) } else { Err(Failure::Work) }
        };
        lock.with(work).await?;
        Ok("released".to_owned())
    }

    async fn repeat(&self, number: &str, name: &str, options: &[String]) -> Outcome {
        let before = Handle::current().metrics().num_alive_tasks();
        for _ in 0..number.parse().expect("a number") {
            self.lock(name, options).acquire().await?.release().await?;
        }
        Ok(format!("left {}", Handle::current().metrics().num_alive_tasks().saturating_sub(before)))
    }
}
