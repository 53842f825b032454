"""What the Python programs of the client matrix share. The command line and the lines that they print: compat-tests/doc.go."""
import queue
import sys
import threading

addresses, name, replicas, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PER_CODEC = 100
_counts = {True: 0, False: 0}
_lock = threading.Lock()
_told = queue.Queue()


def say(*words):
    with _lock:
        sys.stdout.write(" ".join(str(w) for w in words) + "\n")
        sys.stdout.flush()


def check(what, ok, detail=""):
    _counts[bool(ok)] += 1
    say("ok" if ok else "FAILED", what, "" if ok else detail)


def told():
    """Whether the step is to end."""
    try:
        _told.get_nowait()
        return True
    except queue.Empty:
        return False


def wait():
    """Returns when the step is to end."""
    _told.get()


def flow(send):
    """Sends numbers, 20 at a time, until told; send returns when all are acknowledged."""
    n = 0
    while not told():
        send(range(n, n + 20))
        say(*["acked"] + list(range(n, n + 20)))
        n += 20


def insist(step):
    """Does something again until it succeeds."""
    while True:
        try:
            return step()
        except Exception as e:
            say("again", repr(e))


def transactions(attempt, renew):
    """Makes transactions until told, every second one aborted. attempt(i, values, commit) makes one of them; where it raises,
    what became of it is unknown, and renew() replaces the producer."""
    i = 0
    while not told():
        try:
            attempt(i, ["%d/%d" % (i, k) for k in range(3)], i % 2 == 0)
            say("committed" if i % 2 == 0 else "aborted", i)
        except Exception as e:
            say("unknown", i, repr(e))
            insist(renew)
        i += 1


def group(mode, join):
    """Two members read until told. join(mode, member) gives poll, which returns values of which it commits the positions, and close."""
    stop = threading.Event()

    def member(i):
        try:
            poll, close = join(mode, i)
            while not stop.is_set():
                for value in poll():
                    say("read", i, value)
            close()
        except Exception as e:
            check("member %d" % i, False, repr(e))

    threads = [threading.Thread(target=member, args=(i,)) for i in range(2)]
    for t in threads:
        t.start()
    wait()
    stop.set()
    for t in threads:
        t.join()


def run(**actions):
    threading.Thread(target=lambda: [_told.put(line) for line in sys.stdin], daemon=True).start()
    for step in steps:
        say("step", step)
        kind, _, mode = step.partition(":")
        actions[kind](*[mode] if mode else [])
    say("%d passed, %d failed" % (_counts[True], _counts[False]))
    sys.exit(1 if _counts[False] else 0)
