"""kcat as a program of the client matrix: each thing done is a run of kcat."""
import re
import subprocess
import threading

import scenario as s

base = ["kcat", "-b", s.addresses, "-X", "client.id=" + s.name, "-X", "reconnect.backoff.max.ms=500"]


def kcat(*args, stdin=""):
    done = subprocess.run(base + list(args), input=stdin, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError("kcat %s: %s" % (" ".join(args), done.stderr))
    return done.stdout


def admin():
    s.check("topics are listed", s.name + "-flow" in kcat("-L"))


def codecs():
    topic = s.name + "-codecs"
    for codec in s.CODECS:
        kcat("-P", "-t", topic, "-K:", "-z", codec, "-H", "h=" + codec, stdin="".join("%s-%d:%s-%d\n" % (codec, i, codec, i) for i in range(s.PER_CODEC)))
        s.check("produced with " + codec, True)
    lines = kcat("-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%k %h %s\n").split("\n")[:-1]
    s.check("reads all", len(set(lines)) == len(lines) == s.PER_CODEC * len(s.CODECS), len(lines))
    s.check("keys, values, headers", all(k == v and h == "h=" + k.split("-")[0] for k, h, v in (line.split(" ") for line in lines)))


def flow():
    def send(values):
        """kcat gives up when it reaches no broker; what it has not delivered then is sent again."""
        while True:
            try:
                return kcat("-P", "-t", s.name + "-flow", "-K:", "-X", "enable.idempotence=true", "-X", "acks=all",
                            stdin="".join("%d:%d\n" % (v, v) for v in values))
            except RuntimeError as e:
                s.say("again", e.args[0].split("\n")[0])
    s.flow(send)


def txn():
    """Each transaction is a run of kcat, which commits at the end of its input, and aborts when it is told to end. It sends no offsets."""
    delivered = re.compile(r"MessageSet with (\d+) message\(s\).* delivered")

    def attempt(i, values, commit):
        p = subprocess.Popen(base + ["-P", "-t", s.name + "-txn", "-K:", "-m", "30", "-d", "msg", "-X", "transactional.id=" + s.name + "-id", "-X", "linger.ms=0"],
                             stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        p.stdin.write("".join("%s:%s\n" % (v, v) for v in values) + "\n" * 1000)  # it takes a line when it has read 128 bytes more
        p.stdin.flush()
        err, missing = "", 0 if commit else len(values)
        while missing > 0 and (line := p.stderr.readline()):
            found = delivered.search(line)
            missing -= int(found[1]) if found else 0
            err += line
        if not commit:
            p.terminate()
        err += p.communicate()[1]
        if p.returncode != 0 or ("committed" if commit else "Aborting transaction") not in err:
            raise RuntimeError("kcat ended with %d: %s" % (p.returncode, err.strip().split("\n")[-1]))
    s.transactions(attempt, lambda: None)


def group(mode):
    running, over = {}, threading.Event()

    def member(i):
        more = ["-X", "group.instance.id=i%d" % i] if mode == "static" else []
        more += ["-X", "partition.assignment.strategy=" + ("cooperative-sticky" if mode == "cooperative" else "range"), "-X", "auto.offset.reset=earliest",
                 "-X", "auto.commit.interval.ms=200", "-X", "session.timeout.ms=10000", "-X", "heartbeat.interval.ms=500"]
        while not over.is_set():  # kcat gives up when it reaches no broker
            p = running[i] = subprocess.Popen(base + ["-G", s.name + "-" + mode, *more, "-u", "-q", "-f", "%s\n", s.name + "-group"], stdout=subprocess.PIPE, text=True)
            for line in p.stdout:
                s.say("read", i, line.strip())
            p.wait()
        s.check("member ends", running[i].returncode == 0, running[i].returncode)

    members = [threading.Thread(target=member, args=(i,)) for i in range(2)]
    for m in members:
        m.start()
    s.wait()
    over.set()
    for i, m in enumerate(members):
        while m.is_alive():
            running[i].terminate()
            m.join(0.2)


s.run(admin=admin, codecs=codecs, flow=flow, txn=txn, group=group)
