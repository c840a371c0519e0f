"""From raw records to one committed transaction: decode, fold, judge, plan deliveries, commit.

Nothing here waits and nothing reads a clock. What one record does is in service.evaluating, and cannot leave it. Only a commit
that fails raises; then nothing of the batch happened, and `reset` forgets it.
"""

from __future__ import annotations

from collections.abc import Mapping

from alerts.incidents import Plan
from collector import health
from collector.model import Batch, RawRecord
from collector.run_state import RecordedFor
from rules.engine import Engine
from service.consume import Processed
from service.evaluating import Evaluating
from service.letters import Letters
from service.live import Live
from service.own_alerts import Own
from service.parts import Parts
from service.pending import Pending
from service.quietness import Quietness
from service.self_watch import SelfWatch
from service.storm_watch import StormWatch
from service.tally import Tally


class Pipeline:
    """Used by one thread. After `process`, `tick` or `checkpoint` raised, call `reset` and read again from the store."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._whole = not parts.sole_reader
        """Whether the runs are here that no assignment brings."""
        self._tally = Tally(parts.health)
        self._letters = Letters(parts.dead_letters, self._tally)
        self._positions: dict[str, int | None] = {}
        self._watch = SelfWatch(parts.own, parts.book, parts.store, parts.rejected_share)
        self._storms = StormWatch(parts.book, parts.store)
        self._evaluating = Evaluating(parts, self._letters, self._tally, self._watch, self._storms)
        self._quiet = Quietness()
        self._restore_own()

    @property
    def engine(self) -> Engine:
        """The rules in force."""
        return self._evaluating.engine

    # ---- the loop's calls

    def process(self, batch: Batch, now: float) -> Processed:
        """Apply and commit one batch; `now` is the wall clock."""
        silence = self._quiet.known(now) and not batch.assigned
        self._rebalance(batch)
        pending = Pending(self._positions)
        rejected = len(batch.faults)
        for fault in batch.faults:
            self._letters.put(fault.partition, fault.offset, "unreadable", fault.reason, fault.value, now)
        rejected += self._evaluating.records(self._unread(batch, pending), pending, now, silence=silence)
        if batch.records or batch.faults:
            self._watch.count(len(batch.records) - rejected + len(batch.faults), rejected, pending, now)
        processed = self._commit(pending, now)
        self._quiet.looked(batch.caught_up, now)
        self._letters.committed()
        if batch.records or batch.faults:
            known = batch.records and self._parts.clock == "received"
            self._tally.tell(batch, now - batch.records[-1].received_at if known else None, len(self._parts.shelf))
        return processed

    def tick(self, now: float) -> Processed:
        """Judge silence (only where nothing waits to be read), end own alerts that are over, let go of old runs."""
        pending = Pending(self._positions)
        live_clock = self._parts.clock == "received"
        for live in self._parts.shelf.all():
            self._evaluating.retire(live, pending, now)
        silent = self._quiet.known(now)
        if silent and live_clock:
            for live in self._parts.shelf.running():
                self._evaluating.stall(live, pending, now)
        self._watch.tick(pending, now)
        if self._parts.canary is not None:
            self._parts.canary.tick(pending, now)
        self._due(pending, now)
        expired = self._parts.shelf.expired(now, silent=silent) if live_clock else []
        over = [live for live in expired if not self._parts.book.waits(live.run.run)]
        for live in over:
            if live.saved < live.sequence:
                pending.save(live)
        processed = self._commit_owed(pending, now)
        for live in over:
            self._parts.shelf.forget(live.run.run)
        self._parts.health.set(health.RUNS, len(self._parts.shelf))
        return processed

    def checkpoint(self, now: float) -> Processed:
        """Save every run whose log has grown since its last checkpoint."""
        pending = Pending(self._positions)
        for live in self._parts.shelf.all():
            if live.saved < live.sequence:
                pending.save(live)
        return self._commit_owed(pending, now)

    def reset(self) -> None:
        """Forget everything: nothing that was not committed has happened."""
        self._parts.shelf.clear()
        self._positions.clear()
        self._quiet.forget()
        self._whole = not self._parts.sole_reader
        self._tally.forget()
        self._restore_own()

    # ---- changes from outside, between two batches

    def reload(self, engine: Engine, now: float, recorded_for: RecordedFor | None = None) -> Processed:
        """Judge by other rules, and with other recorded baselines if they are given, from the next record on. States of rules
        that are still there go on; alerts of removed rules are resolved."""
        self._evaluating.use(engine)
        self._parts.shelf.deepen(engine.depth)
        if recorded_for is not None:
            self._parts.shelf.runs.use_recorded(recorded_for)
        return self.tick(now)

    def happened(self, own: Own, reason: str, now: float) -> Processed:
        """Raise an alert about Tocsin itself."""
        return self.state_of(own, True, reason, now)

    def state_of(self, own: Own, fires: bool, reason: str, now: float) -> Processed:
        """Say whether something about Tocsin itself is so; when it cannot be committed now, with the next tick that can."""
        self._watch.owe(own, fires, reason, now)
        return self._commit_owed(Pending(self._positions), now)

    def is_open(self, incident: str) -> bool:
        """Whether people can say something of this incident here."""
        return self._parts.book.is_open(incident)

    def acknowledge(self, incident: str, owner: str, until: float, now: float, *, door: str = "", note: str = "") -> Processed:
        """Somebody has an open incident in hand until then, see `IncidentBook.acknowledge`."""
        return self._said(self._parts.book.acknowledge(incident, owner, until, now, door=door, note=note), now)

    def close_by_hand(self, incident: str, owner: str, now: float) -> Processed:
        """Somebody says that an open incident is over, see `IncidentBook.close_by_hand`."""
        return self._said(self._parts.book.close_by_hand(incident, owner, now), now)

    # ---- runs of our own

    def _restore_own(self) -> None:
        self._watch.restore()
        self._storms.restore()
        if self._parts.canary is not None:
            self._parts.canary.restore()

    # ---- partitions

    def _rebalance(self, batch: Batch) -> None:
        if not self._whole:
            self._parts.shelf.restore_running()
            self._whole = True
        for partition in batch.revoked:
            self._parts.shelf.forget_partition(partition)
            self._positions.pop(partition, None)
        for partition in batch.assigned:
            self._positions[partition] = self._parts.store.position(partition)
            self._parts.shelf.restore_partition(partition)
        if batch.assigned:
            self._quiet.forget()

    def _unread(self, batch: Batch, pending: Pending) -> list[RawRecord]:
        """Without what was read before: a source may give a record again after it was opened anew."""
        records: list[RawRecord] = []
        for raw in batch.records:
            partition = raw.partition
            if partition not in self._positions:
                self._positions[partition] = self._parts.store.position(partition)
            at = pending.ends.get(partition, self._positions[partition])
            if at is None or raw.offset >= at:
                records.append(raw)
                pending.read(partition, raw.next_offset)
        return records

    # ---- what no record caused

    def _due(self, pending: Pending, now: float) -> None:
        """What the incident book has to say because time has passed."""
        self._unasked(self._storms.look(now), pending)
        self._unasked(self._parts.book.tick(now), pending)

    def _said(self, plan: Plan, now: float) -> Processed:
        pending = Pending(self._positions)
        self._unasked(plan, pending)
        return self._commit(pending, now)

    def _unasked(self, plan: Plan, pending: Pending) -> None:
        """Note a plan that no event caused: the partitions of its runs must still be ours."""
        pending.planned((), plan)
        runs = {incident.run for incident in plan.incidents}
        for live in self._parts.shelf.all():
            if live.run.run in runs:
                pending.judged(live.partition)

    # ---- the transaction

    def _commit_owed(self, pending: Pending, now: float) -> Processed:
        self._watch.settle(pending)
        processed = self._commit(pending, now)
        self._watch.settled()
        return processed

    def _commit(self, pending: Pending, now: float) -> Processed:
        if not pending:
            self._show(pending.renewed)
            return Processed()
        commit, saved = pending.commit(now, self._parts.checkpoint_rows)
        self._parts.store.commit(commit)
        for live in saved:
            live.saved = live.sequence
        for live in pending.touched.values():
            live.states.dirty.clear()
        self._show(pending.touched | pending.renewed)
        self._positions.update(pending.ends)
        return Processed(dict(pending.ends), tuple(pending.events), pending.receivers)

    def _show(self, lives: Mapping[str, Live]) -> None:
        """What the exporter shows of the rules of these runs is now as their states are, which are stored."""
        if self._parts.show_rules:
            for live in lives.values():
                live.exposed = self.engine.exposed(live.states)
