"""Keep models on disk, with a manifest for each, which names its files and their hashes.

    models/OWNER--NAME/COMMIT.json      the manifest, written last: without it there is no model
                       COMMIT/          the files, under their usual names
                       COMMIT.partial/  those of a download that is not done
                       COMMIT.lock      shared by who uses the model, held alone by who changes it
                       COMMIT.adding.lock  held by who adds files to the model, or changes it

The files may also lie in Hugging Face's cache or in a folder of the user's: then the manifest names
that folder, and nothing is copied or ever removed there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from inferno.errors import ModelError
from inferno.home import home_folder
from inferno.hub.folders import bytes_freed, remove_file, remove_links, remove_tree
from inferno.hub.locks import hold, let_go, take_lock
from inferno.hub.manifest import (
    MANIFEST,
    UNFINISHED,
    Entry,
    folder_name,
    may_be_of_model,
    newest,
    read_manifest,
    write_manifest,
)
from inferno.hub.names import RemoteFile, is_commit, is_repository
from inferno.hub.stored_file import read_anew
from inferno.whole_file import remove_unfinished

_PARTIAL = ".partial"
_LOCK = ".lock"
_ADDING = ".adding.lock"


@dataclass(frozen=True, slots=True)
class Partial:
    """The files of a download that isn't complete."""

    name: str
    revision: str
    folder: Path
    num_bytes: int


class Store:
    """The store of models in one folder, which need not exist yet."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def of_user(cls) -> Store:
        """Return the store in INFERNO_HOME, or in the user's cache."""
        try:
            return cls(home_folder() / "models")
        except RuntimeError as problem:
            raise ModelError(f"there is no place for models: {problem}; set INFERNO_HOME") from None

    def entries(self) -> list[Entry]:
        """Return all models by name, the newest revision first; damaged manifests are left out."""
        found = []
        for path in self.root.glob(f"*--*/*{MANIFEST}"):
            with contextlib.suppress(ModelError):
                if not path.parent.is_symlink():
                    found.append(read_manifest(path))
        return sorted(found, key=lambda one: (one.name.casefold(), -one.added_at))

    def unreadable(self, name: str | None = None) -> list[Path]:
        """Return the manifests, of all models or of one, that can't be read or are damaged."""
        folder = "*--*" if name is None else folder_name(name)
        found = []
        for path in sorted(self.root.glob(f"{folder}/*{MANIFEST}")):
            try:
                read_manifest(path)
            except ModelError:
                found.append(path)
        return found

    def find(self, name: str, revision: str | None = None) -> Entry | None:
        """Return the model of a name, as of a branch, tag or commit, by default `newest`.

        Raises ModelError where this user may not read what the store says of it.
        """
        found = [one for one in self.entries() if one.name == name]
        if not found and is_repository(name):
            for path in self.unreadable(name):
                if not os.access(path, os.R_OK):
                    raise ModelError(
                        f"{path} can't be read by this user: have its owner allow it, or have "
                        "INFERNO_HOME name a folder of yours"
                    )
        if revision is not None:
            found = [one for one in found if revision in (one.revision, *one.asked)]
        return newest(found) if found else None

    def folder(self, name: str, revision: str) -> Path:
        """Return the folder for the files of a model that the store keeps itself."""
        return self._path(name, revision, "")

    def partial_folder(self, name: str, revision: str) -> Path:
        """Return the folder for the files of a download until all are there."""
        return self._path(name, revision, _PARTIAL)

    @contextlib.contextmanager
    def alone(self, name: str, revision: str, *, may_wait: bool) -> Iterator[None]:
        """Lock a model exclusively until the block ends; raise ModelError if others use it."""
        with (
            self._locked(name, revision, fcntl.LOCK_EX, _ADDING, may_wait=may_wait),
            self._locked(name, revision, fcntl.LOCK_EX, may_wait=may_wait),
        ):
            yield

    @contextlib.contextmanager
    def adding(self, name: str, revision: str, *, may_wait: bool) -> Iterator[None]:
        """Lock a model that others may use, so that nobody else changes it until the block ends.

        Its files stay as they are, others may join them. Raises ModelError if a change is under
        way. A store that can't be written has no locks.
        """
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):
                for kind, end in ((fcntl.LOCK_EX, _ADDING), (fcntl.LOCK_SH, _LOCK)):
                    lock = self._locked(name, revision, kind, end, may_wait=may_wait)
                    stack.enter_context(lock)
            yield

    @contextlib.contextmanager
    def together(self, name: str, revision: str, *, may_wait: bool) -> Iterator[None]:
        """Lock a model against changes until the block ends; ModelError if one is under way.

        A store that can't be written has no locks.
        """
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):
                lock = self._locked(name, revision, fcntl.LOCK_SH, may_wait=may_wait)
                stack.enter_context(lock)
            yield

    def use(self, entry: Entry) -> Entry | None:
        """Keep others from removing a model until this process ends, and note that it was used.

        This waits while another process verifies the model. It returns the model as it is now, or
        None where it, or a file of it, was removed since it was looked for. Where its files lie in
        the folder of another model, that one is kept too.
        """
        try:
            path = self._path(entry.name, entry.revision, _LOCK)
            lock = take_lock(path, fcntl.LOCK_SH, may_wait=True)
        except OSError:  # a store that can't be written has no locks, and perhaps no manifest
            return self._now(entry) if entry.is_owned else entry
        assert lock is not None
        now = self._now(entry)
        if now is None:
            os.close(lock)
            return None
        hold(lock)
        with contextlib.suppress(OSError):
            os.utime(path)
        if not now.is_owned and not all(map(self.use, self.owners(now.paths))):
            return None
        return now

    def owners(self, paths: Iterable[Path]) -> list[Entry]:
        """Return the models in whose folders in the store files lie, once links are followed."""
        files = [path.resolve() for path in paths]
        root = self.root.resolve()
        if not any(file.is_relative_to(root) for file in files):
            return []
        folders = ((one, one.folder.resolve()) for one in self.entries() if one.is_owned)
        return [
            entry for entry, folder in folders if any(file.is_relative_to(folder) for file in files)
        ]

    def verified(self, entry: Entry) -> Entry | None:
        """Return a model as it is now; None where a file hasn't the content that was verified.

        Files that were touched are read anew, and recorded. Where its folder has got a file that is
        not the model's, None; ModelError where that folder is the store's.
        """
        if foreign := entry.foreign_files():
            if entry.is_owned:
                raise ModelError(
                    f"{foreign[0]} is no file of {entry.name}, and would be read as one: move it "
                    "elsewhere, or have `inferno download` remove it"
                )
            return None
        if not entry.changed():
            return entry
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.together(entry.name, entry.revision, may_wait=True))
            now = self._now(entry)  # others may have added to it
            if now is None:
                return None
            files = [read_anew(now.folder, file) for file in now.files]
            good = {file.name: file for file in files if file is not None}
            if len(good) < len(files):
                return None
            can_save = True
            try:
                stack.enter_context(self.adding(entry.name, entry.revision, may_wait=False))
            except ModelError:  # others add to it: it is read anew next time
                can_save = False
            late = self._now(now)  # a branch may have moved on while files were read
            if late is None:
                return None
            now = replace(late, files=tuple(good.get(file.name, file) for file in late.files))
            if can_save:
                with contextlib.suppress(OSError):  # read anew next time
                    self._save(now)
        return now

    def _now(self, entry: Entry) -> Entry | None:
        """Return an entry as its manifest is now; None where it lacks one of the entry's files."""
        with contextlib.suppress(ModelError):
            now = read_manifest(self._path(entry.name, entry.revision, MANIFEST))
            if now.folder == entry.folder and entry.contents <= now.contents:
                return now
        return None

    def let_go(self, name: str, revision: str) -> None:
        """Release this process's lock of a model, so that damaged files can be replaced."""
        let_go(self._path(name, revision, _LOCK))

    def used_at(self, entry: Entry) -> float | None:
        """Return when a model was last loaded, in seconds since 1970; None if never."""
        try:
            used = self._path(entry.name, entry.revision, _LOCK).stat().st_mtime
        except OSError:
            return None
        return used if used > entry.added_at else None

    def write(self, entry: Entry) -> None:
        """Write the manifest of a model, all or nothing; it alone has its branches and tags now."""
        self._save(entry)
        for other in self._other_revisions(entry):
            if not set(entry.asked).isdisjoint(other.asked):
                self._forget(other, entry.asked)

    def asked_also(self, entry: Entry, revision: str | None) -> Entry:
        """Return an entry that is asked for now, by a further branch or tag.

        It loses those that later downloads found to be of other commits.
        """
        later = [one for one in self._other_revisions(entry) if one.added_at > entry.added_at]
        asked = {*entry.asked}.difference(*(one.asked for one in later))
        if revision is not None and revision != entry.revision:
            asked.add(revision)
        return replace(entry, asked=tuple(sorted(asked)), added_at=time.time())

    def _other_revisions(self, entry: Entry) -> list[Entry]:
        models = (one for one in self.entries() if one.name == entry.name)
        return [one for one in models if one.revision != entry.revision]

    def _save(self, entry: Entry) -> None:
        write_manifest(self._path(entry.name, entry.revision, MANIFEST), entry)

    def _forget(self, entry: Entry, asked: Collection[str]) -> None:
        """Take branches and tags, which have moved on, from a model."""
        with (
            contextlib.suppress(ModelError),  # it is being downloaded, by what it is asked for now
            self.together(entry.name, entry.revision, may_wait=False),
        ):
            if (now := self._now(entry)) is not None:
                self._save(replace(now, asked=tuple(sorted({*now.asked} - {*asked}))))

    def reopen(self, name: str, revision: str, *, keeps: bool) -> Path:
        """Return the folder of a download, keeping good files of an earlier try.

        keeps  whether there is a model already, which stays unchanged until the download is done.
        """
        folder, partial = self.folder(name, revision), self.partial_folder(name, revision)
        for path in (folder, partial):
            remove_links(path)
        if not keeps:
            self._path(name, revision, MANIFEST).unlink(missing_ok=True)
            if folder.exists() and not partial.exists():
                os.replace(folder, partial)
            elif folder.exists():
                shutil.rmtree(folder)
        partial.mkdir(parents=True, exist_ok=True)
        return partial

    def gather(self, name: str, revision: str) -> None:
        """Move the files of a complete download to the folder of the model."""
        folder, partial = self.folder(name, revision), self.partial_folder(name, revision)
        if not folder.exists():
            os.replace(partial, folder)
            return
        for path in [one for one in partial.rglob("*") if not one.is_dir()]:
            target = folder / path.relative_to(partial)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, target)
        shutil.rmtree(partial)

    def remove(self, entry: Entry) -> int:
        """Remove a model and return how many bytes that frees; ModelError where it is in use.

        If the model's files lie outside the store, only the manifest is removed.
        """
        with self.alone(entry.name, entry.revision, may_wait=False):
            # Without its manifest it is no model, should the rest be interrupted.
            self._path(entry.name, entry.revision, MANIFEST).unlink(missing_ok=True)
            remove_tree(self.partial_folder(entry.name, entry.revision))
            freed = remove_tree(self.folder(entry.name, entry.revision))
            self._unlink_locks(entry.name, entry.revision)
        with contextlib.suppress(OSError):  # other revisions are there
            self._path(entry.name, entry.revision, _LOCK).parent.rmdir()
        return freed

    def remove_files(self, entry: Entry, names: Collection[str]) -> int:
        """Remove some files of a model, and return how many bytes that frees.

        A model that would have no weights left is removed as a whole.
        """
        with self.alone(entry.name, entry.revision, may_wait=False):
            now = self.find(entry.name, entry.revision) or entry  # others may have added to it
            rest = now.without(names)
            if rest is not None:
                self._save(rest)  # without them it is a model, should what follows be interrupted
                return sum(remove_file(now.folder / name) for name in names if now.is_owned)
        return self.remove(entry)

    def partials(self) -> list[Partial]:
        """Return the downloads that aren't complete, including those under way."""
        found = []
        for folder in sorted(self.root.glob("*--*/*")):
            name = folder.parent.name.replace("--", "/", 1)
            revision = folder.name.removesuffix(_PARTIAL)
            if (
                not (folder.is_dir() or folder.name.endswith(_PARTIAL))
                or folder.parent.is_symlink()
                or not is_repository(name)
                or not is_commit(revision)
            ):
                continue
            if not self._is_model(name, revision, folder):
                found.append(Partial(name, revision, folder, bytes_freed(folder)))
        return found

    def _is_model(self, name: str, revision: str, folder: Path) -> bool:
        """Return whether a folder is that of a model, and not of a download."""
        manifest = self._path(name, revision, MANIFEST)
        return folder.name == revision and may_be_of_model(manifest)

    def remove_partial(self, partial: Partial) -> int:
        """Remove the files of an incomplete download, unless it is under way.

        Raises ModelError where they can't be removed.
        """
        with contextlib.ExitStack() as stack:
            try:
                lock = self.alone(partial.name, partial.revision, may_wait=False)
                stack.enter_context(lock)
            except ModelError:
                return 0
            if self._is_model(partial.name, partial.revision, partial.folder):
                return 0  # it was done since it was looked for
            manifest = self._path(partial.name, partial.revision, MANIFEST)
            if partial.folder.name == partial.revision:
                manifest.unlink(missing_ok=True)  # damaged
            freed = remove_tree(partial.folder)
            if not manifest.exists():
                self._unlink_locks(partial.name, partial.revision)
        with contextlib.suppress(OSError):
            partial.folder.parent.rmdir()
        return freed

    def remove_unfinished(self) -> int:
        """Remove manifests that were never finished, and return how many bytes that frees."""
        freed = 0
        for folder in self.root.glob("*--*"):
            if not folder.is_symlink():
                freed += remove_unfinished(folder, UNFINISHED)
                with contextlib.suppress(OSError):  # there are models in it
                    folder.rmdir()
        return freed

    def same_content(self, file: RemoteFile) -> Iterator[Path]:
        """Yield other models' files in the store that should have the content of a remote file.

        What lies in a folder of the user's is the user's to change.
        """
        for entry in self.entries():
            for stored in entry.files if entry.is_owned else ():
                if file.sha256 == stored.sha256 and stored.size == file.size:
                    yield entry.folder / stored.name

    def _path(self, name: str, revision: str, end: str) -> Path:
        assert is_repository(name), name
        assert is_commit(revision), revision
        return self.root / folder_name(name) / f"{revision}{end}"

    def _unlink_locks(self, name: str, revision: str) -> None:
        """Remove the files of a model's locks, which the caller holds alone."""
        for end in (_LOCK, _ADDING):
            self._path(name, revision, end).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _locked(
        self, name: str, revision: str, kind: int, end: str = _LOCK, *, may_wait: bool
    ) -> Iterator[None]:
        lock = take_lock(self._path(name, revision, end), kind, may_wait=may_wait)
        if lock is None:
            raise ModelError(
                f"{name} is in use: end what runs it, or wait for its download, then try again"
            )
        try:
            yield
        finally:
            os.close(lock)
