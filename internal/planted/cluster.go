package planted

// The bugs of replication and of the controller. Each comment says what the code then leaves out.
const (
	CommitsProposedISR   Bug = "commits-proposed-isr"       // the HW waits for the ISR and for what is proposed, not for one of them (R11)
	CommitsAlone         Bug = "commits-alone"              // the HW waits for the other members of the ISR
	CommitsUnderMinISR   Bug = "commits-under-min-isr"      // the HW stands still while fewer than min.insync.replicas are in sync (R8)
	CommitsUnflushed     Bug = "commits-unflushed"          // where its own disk counts, the leader counts what it has flushed
	TellsUnflushed       Bug = "tells-unflushed"            // so does a follower under kaja.fsync=always
	JoinsUnseen          Bug = "joins-unseen"               // a replica joins the ISR once it has fetched up to the HW in this epoch (R12)
	JoinsBehindStart     Bug = "joins-behind-epoch-start"   // and up to where this leadership began
	OldEpochFetches      Bug = "old-epoch-fetches"          // a fetch of an earlier leader epoch moves nothing (R13)
	OldLifeFetches       Bug = "old-life-fetches"           // nor does one of an earlier life of the follower (R6)
	OldImageWins         Bug = "old-image-wins"             // metadata older than what is known changes nothing
	DivergenceUnseen     Bug = "divergence-unseen"          // a leader compares epochs with whoever fetches (R2)
	CutsToLeadersEnd     Bug = "cuts-to-the-leaders-end"    // a follower that does not know the leader's epoch cuts to the end of its own (R3)
	StaleLeaderAppends   Bug = "stale-leader-appends"       // who is no leader, or of another epoch, refuses (R15)
	BrokerEpochUnchecked Bug = "broker-epoch-unchecked"     // a member of a proposed ISR is in the life that the leader has seen (R6)
	FencedJoins          Bug = "fenced-joins"               // a fenced or stopping broker joins no ISR (R7)
	FencedLeads          Bug = "fenced-leads"               // nor is it elected
	UncleanUnasked       Bug = "unclean-unasked"            // only a replica that is in sync is elected, unless asked for (R22)
	LostStaysEligible    Bug = "lost-stays-eligible"        // who comes back from an unclean stop is out of ISR and ELR (R8)
	EpochKept            Bug = "leader-epoch-kept"          // each change of the leader has an epoch of its own
	OldPartitionEpoch    Bug = "old-partition-epoch"        // an ISR is proposed from the newest state
	EntriesUnfenced      Bug = "entries-unfenced"           // an entry of an earlier controller has no effect (C7)
	WithoutBarrier       Bug = "controller-without-barrier" // a new controller waits for what predecessors have committed (C7)
	GenerationUnchecked  Bug = "generation-unchecked"       // a commit of an earlier generation is refused (G1)
	ProducerIDsTwice     Bug = "producer-ids-twice"         // a block of producer ids is given once (P8)
)

// The bugs of forming a cluster and of choosing its voters. Each comment says what the code then leaves out.
const (
	FoundsUnanswered Bug = "founds-unanswered"  // a node founds once every listed one has answered (C12)
	LetsTwoFound     Bug = "lets-two-found"     // a node lets one node found, once for all (C12)
	WipedVotes       Bug = "wiped-votes"        // a node whose disk was wiped comes back without a vote (C11)
	PromotedAtOnce   Bug = "promoted-at-once"   // a node is given a vote when it has been there for a while
	PromotedBehind   Bug = "promoted-behind"    // and has caught up
	PromotedAlone    Bug = "promoted-alone"     // from one voter to three both are promoted together
	LeadsWithoutDisk Bug = "leads-without-disk" // who leads the metadata falls silent while its disk hangs (D16)
)

// Forming lists the bugs of forming a cluster and of its voters.
func Forming() []Bug {
	return []Bug{FoundsUnanswered, LetsTwoFound, WipedVotes, PromotedAtOnce, PromotedBehind, PromotedAlone, LeadsWithoutDisk}
}

// Cluster lists the bugs of replication and of the controller, those of the log that only several replicas show among
// them.
func Cluster() []Bug {
	return []Bug{
		CommitsProposedISR, CommitsAlone, CommitsUnderMinISR, CommitsUnflushed, TellsUnflushed, JoinsUnseen, JoinsBehindStart,
		OldLifeFetches, DivergenceUnseen, StaleLeaderAppends,
		FencedJoins, FencedLeads, UncleanUnasked, LostStaysEligible, EpochKept,
		ProducerIDsTwice, WindowOfOne, ProducersNotRewound, EpochsNotCut,
		DuplicateUnrecognised,
	}
}
