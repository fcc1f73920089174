//! Which rank of how many this process is, told by whatever started it: `mpirun` of Open MPI, MPICH or MVAPICH2,
//! PMIx, `srun`, or a person. No library of MPI is needed for that, for launchers put it into the environment.

use std::{fmt, net::Ipv6Addr};

/// Where the ranks meet, if neither an option nor a job says which port.
const PORT: u16 = 27183;
/// Ports of jobs, so that two jobs on one node do not meet: [first, first + count).
const JOB_PORTS: (u16, u64) = (20_000, 7_000);

/// This process among its fellows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    pub rank: usize,
    pub size: usize,
    /// The address that rank 0 listens at, as `host:port`.
    pub meeting: String,
}

/// What is said on the command line, which goes before the environment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Told {
    pub rank: Option<usize>,
    pub size: Option<usize>,
    /// `host:port` or `host`.
    pub meeting: Option<String>,
}

/// The variable that says where the ranks meet.
pub const MEETING: &str = "COFS_BENCH_RENDEZVOUS";

/// The variables of one launcher.
struct Launcher {
    rank: &'static str,
    /// The first that is set counts.
    size: &'static [&'static str],
    /// How many ranks are on this node.
    local: &'static [&'static str],
    /// Its variables mean something only if this one is there too.
    needs: Option<&'static str>,
}

const LAUNCHERS: &[Launcher] = &[
    Launcher {
        rank: "OMPI_COMM_WORLD_RANK",
        size: &["OMPI_COMM_WORLD_SIZE"],
        local: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
        needs: None,
    },
    Launcher {
        rank: "MV2_COMM_WORLD_RANK",
        size: &["MV2_COMM_WORLD_SIZE"],
        local: &["MV2_COMM_WORLD_LOCAL_SIZE"],
        needs: None,
    },
    Launcher { rank: "PMI_RANK", size: &["PMI_SIZE"], local: &["MPI_LOCALNRANKS"], needs: None },
    Launcher {
        rank: "PMIX_RANK",
        size: &["PMIX_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        local: &[],
        needs: None,
    },
    // The script of a batch job has these too, and is no rank: only steps, which srun makes, have an id.
    Launcher {
        rank: "SLURM_PROCID",
        size: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"],
        local: &[],
        needs: Some("SLURM_STEP_ID"),
    },
];

/// Names of jobs, so that two jobs do not meet at one port.
const JOBS: &[&str] =
    &["SLURM_JOB_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID", "PBS_JOBID"];

/// The nodes of a job step, the first of which has rank 0.
const NODES: &[&str] = &["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"];

/// Why a place cannot be told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unclear(pub String);

impl fmt::Display for Unclear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// This process's place, or `None` where it is alone. `get` reads the environment.
///
/// Errors: a rank without a size, a rank that is too large, or no way to tell where rank 0 is.
pub fn place(told: &Told, get: &dyn Fn(&str) -> Option<String>) -> Result<Option<Place>, Unclear> {
    let Some((rank, size, local)) = numbers(told, get)? else { return Ok(None) };
    if size == 0 || rank >= size {
        return Err(Unclear(format!("there is no rank {rank} of {size}: ranks are counted from 0")));
    }
    if size == 1 && told.rank.is_none() {
        return Ok(None);
    }
    let meeting = meeting(told, get, local == Some(size))?;
    Ok(Some(Place { rank, size, meeting }))
}

/// Rank, size, and how many ranks are on this node.
#[allow(clippy::type_complexity)]
fn numbers(
    told: &Told,
    get: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<(usize, usize, Option<usize>)>, Unclear> {
    match (told.rank, told.size) {
        (Some(rank), Some(size)) => return Ok(Some((rank, size, None))),
        (None, None) => {}
        _ => return Err(Unclear("a rank needs both --rank and --size".to_owned())),
    }
    let number = |name: &str| get(name).and_then(|text| text.trim().parse::<usize>().ok());
    let first = |names: &[&str]| names.iter().find_map(|name| number(name));
    for launcher in LAUNCHERS {
        let Some(rank) = number(launcher.rank) else { continue };
        if launcher.needs.is_some_and(|name| get(name).is_none()) {
            continue;
        }
        let Some(size) = first(launcher.size) else {
            let text = format!(
                "{} is set, but none of {}: say --rank and --size",
                launcher.rank,
                launcher.size.join(", ")
            );
            return Err(Unclear(text));
        };
        let one_node = number("SLURM_STEP_NUM_NODES") == Some(1);
        let local = if one_node { Some(size) } else { first(launcher.local) };
        return Ok(Some((rank, size, local)));
    }
    Ok(None)
}

fn meeting(told: &Told, get: &dyn Fn(&str) -> Option<String>, one_node: bool) -> Result<String, Unclear> {
    let port = port(get);
    if let Some(text) = told.meeting.clone().or_else(|| get(MEETING)).filter(|text| !text.is_empty()) {
        return with_port(&text, port).ok_or_else(|| {
            Unclear(format!(
                "{text:?} is no place to meet at: --rendezvous (or {MEETING}) is HOST or HOST:PORT"
            ))
        });
    }
    if one_node {
        return Ok(format!("127.0.0.1:{port}"));
    }
    let nodes = NODES.iter().find_map(|name| get(name));
    match nodes.as_deref().and_then(first_host) {
        Some(host) => Ok(format!("{host}:{port}")),
        None => Err(Unclear(format!(
            "nothing tells where rank 0 is: say --rendezvous HOST:PORT, or set {MEETING}"
        ))),
    }
}

/// The port of this job.
fn port(get: &dyn Fn(&str) -> Option<String>) -> u16 {
    let Some(job) = JOBS.iter().find_map(|name| get(name)) else { return PORT };
    let (first, count) = JOB_PORTS;
    // FNV-1a: all ranks must come to the same port, whatever their build.
    let hash = job.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    first + (hash % count) as u16
}

/// `host:port`, where the text is a host, or a host and a port above 0; an IPv6 address with a port has brackets.
fn with_port(text: &str, port: u16) -> Option<String> {
    if text.parse::<Ipv6Addr>().is_ok() {
        return Some(format!("[{text}]:{port}"));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, digits)) if !text.ends_with(']') => {
            (host, digits.parse().ok().filter(|port| *port != 0)?)
        }
        _ => (text, port),
    };
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let sound = match address {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.chars().all(|c| c.is_alphanumeric() || "-._".contains(c)),
    };
    sound.then(|| format!("{host}:{port}"))
}

/// The first host of Slurm's compressed form: `rack[03-05,7]n2,other` begins with `rack03n2`.
fn first_host(nodes: &str) -> Option<String> {
    let mut host = String::new();
    let mut rest = nodes.trim();
    loop {
        match rest.find(['[', ',']) {
            None => {
                host.push_str(rest);
                break;
            }
            Some(at) => {
                host.push_str(rest.get(..at)?);
                if rest.get(at..)?.starts_with(',') {
                    break;
                }
                let (inside, after) = rest.get(at + 1..)?.split_once(']')?;
                host.push_str(inside.split([',', '-']).next()?);
                rest = after;
            }
        }
    }
    (!host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Option<Place>, Unclear> {
        told(&Told::default(), variables)
    }

    fn told(told: &Told, variables: &[(&str, &str)]) -> Result<Option<Place>, Unclear> {
        let get = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, v)| (*v).to_owned());
        place(told, &get)
    }

    fn seat(rank: usize, size: usize) -> Option<(usize, usize)> {
        Some((rank, size))
    }

    fn numbers_of(variables: &[(&str, &str)]) -> Option<(usize, usize)> {
        let mut all = variables.to_vec();
        all.push((MEETING, "h:1"));
        of(&all).unwrap().map(|place| (place.rank, place.size))
    }

    #[test]
    fn every_launcher_is_understood() {
        assert_eq!(numbers_of(&[]), None);
        assert_eq!(numbers_of(&[("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_SIZE", "8")]), seat(3, 8));
        assert_eq!(numbers_of(&[("PMI_RANK", "1"), ("PMI_SIZE", "2")]), seat(1, 2));
        assert_eq!(numbers_of(&[("MV2_COMM_WORLD_RANK", "1"), ("MV2_COMM_WORLD_SIZE", "2")]), seat(1, 2));
        assert_eq!(numbers_of(&[("PMIX_RANK", "5"), ("SLURM_NTASKS", "6")]), seat(5, 6));
        let step = [("SLURM_PROCID", "2"), ("SLURM_NTASKS", "4"), ("SLURM_STEP_ID", "0")];
        assert_eq!(numbers_of(&step), seat(2, 4));
        assert_eq!(numbers_of(&step[..2]), None, "the script of a batch job is no rank");
        assert_eq!(numbers_of(&[("PMI_RANK", "0"), ("PMI_SIZE", "1")]), None, "one of one is alone");
    }

    #[test]
    fn what_makes_no_sense_is_said() {
        assert!(of(&[("PMI_RANK", "1")]).unwrap_err().0.contains("PMI_SIZE"));
        assert!(of(&[("PMI_RANK", "2"), ("PMI_SIZE", "2")]).unwrap_err().0.contains("rank 2 of 2"));
        assert!(of(&[("PMI_RANK", "1"), ("PMI_SIZE", "2")]).unwrap_err().0.contains("--rendezvous"));
        let half = Told { rank: Some(1), ..Told::default() };
        assert!(told(&half, &[]).unwrap_err().0.contains("--size"));
    }

    #[test]
    fn the_command_line_goes_first() {
        let said = Told { rank: Some(0), size: Some(4), meeting: Some("a:5".to_owned()) };
        let place = told(&said, &[("PMI_RANK", "1"), ("PMI_SIZE", "2"), (MEETING, "b")]).unwrap().unwrap();
        assert_eq!(place, Place { rank: 0, size: 4, meeting: "a:5".to_owned() });
    }

    #[test]
    fn a_malformed_meeting_is_named_and_an_empty_one_is_none() {
        let mpi = |meeting| of(&[("PMI_RANK", "1"), ("PMI_SIZE", "2"), (MEETING, meeting)]).unwrap_err().0;
        assert!(
            mpi("a:99999").contains("\"a:99999\" is no place to meet at") && mpi("a:99999").contains(MEETING)
        );
        assert!(mpi("").contains("nothing tells where rank 0 is"), "{}", mpi(""));
        assert_eq!(of(&[(MEETING, "a:99999")]), Ok(None), "who is alone meets nobody");
    }

    #[test]
    fn rank_zero_is_found() {
        let meeting = |variables: &[(&str, &str)]| of(variables).unwrap().unwrap().meeting;
        let mpi = [("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("MPI_LOCALNRANKS", "2")];
        assert_eq!(meeting(&mpi), "127.0.0.1:27183");
        let step = [
            ("SLURM_PROCID", "2"),
            ("SLURM_STEP_NUM_TASKS", "4"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_STEP_NODELIST", "n[07-09,12],login"),
        ];
        assert_eq!(meeting(&step), "n07:27183");
        let mut job = step.to_vec();
        job.push(("SLURM_JOB_ID", "1234"));
        let (host, port) = (meeting(&job), meeting(&job));
        assert_eq!(host, port);
        assert!(host.starts_with("n07:2") && host != "n07:27183", "{host}");
    }

    #[test]
    fn hosts_and_ports_are_read() {
        for (text, expect) in [
            ("a", "a:9"),
            ("a:5", "a:5"),
            ("10.0.0.1", "10.0.0.1:9"),
            ("::1", "[::1]:9"),
            ("[::1]:5", "[::1]:5"),
            ("[::1]", "[::1]:9"),
        ] {
            assert_eq!(with_port(text, 9).as_deref(), Some(expect));
        }
        for text in [
            ":5", "a:", "a:0", "a:65536", "a:x", "a b", "a:5:6", "[a]:5", "[::1", "::1]:5", "[::1]:",
            "http://a", "a\n",
        ] {
            assert_eq!(with_port(text, 9), None, "{text}");
        }
        for (text, expect) in
            [("a", "a"), ("a,b", "a"), ("n[1-3]", "n1"), ("r[03-05,7]n[2,4],x", "r03n2"), ("n[001]", "n001")]
        {
            assert_eq!(first_host(text).as_deref(), Some(expect));
        }
        assert_eq!(first_host(""), None);
        assert_eq!(first_host("n[1"), None);
    }
}
