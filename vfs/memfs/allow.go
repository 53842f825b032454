package memfs

import (
	"errors"
	"fmt"
	"slices"
)

// maxPendingNames bounds the search of Allows, which tries every set of pending changes of names.
const maxPendingNames = 14

// Allows says why a crash at this moment could not leave what is in got, nil if it could: got maps the path of each file
// below dir, relative to it, to its content, and that of each directory, ending in a slash, to nil.
func (fs *FS) Allows(dir string, got map[string][]byte) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	n := len(fs.pending)
	if n > maxPendingNames {
		return fmt.Errorf("%d changes of names are pending, at most %d can be tried", n, maxPendingNames)
	}
	var closest error
	best := -1
	for set := range 1 << n {
		left, closed := fs.leaves(set)
		if !closed {
			continue
		}
		root := fs.root
		for _, part := range clean(dir) {
			if root = left(root)[part]; root == nil {
				break
			}
		}
		if root == nil {
			continue
		}
		matched, err := compare(root, "", left, got)
		if err == nil && matched == len(got) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("%d names should not be there", len(got)-matched)
		}
		if matched > best {
			best, closest = matched, err
		}
	}
	return errors.Join(errors.New("no set of pending changes explains what is there; the closest fails with"), closest)
}

// leaves gives the entries of each directory if of the pending changes those in set survive; closed is false if one of
// them would survive without an earlier one of the same name.
func (fs *FS) leaves(set int) (entries func(*node) map[string]*node, closed bool) {
	left := map[*node]map[string]*node{}
	entries = func(dir *node) map[string]*node {
		if left[dir] == nil {
			left[dir] = map[string]*node{}
			for name, n := range dir.durable {
				left[dir][name] = n
			}
		}
		return left[dir]
	}
	for i, op := range fs.pending {
		if set>>i&1 == 0 {
			continue
		}
		for j, earlier := range fs.pending[:i] {
			if set>>j&1 == 0 && op.follows(earlier) {
				return nil, false
			}
		}
		if op.delDir != nil {
			delete(entries(op.delDir), op.delName)
		}
		if op.addDir != nil {
			entries(op.addDir)[op.addName] = op.node
		}
	}
	return entries, true
}

// compare counts the names of got that are explained, and stops at the first that is not.
func compare(dir *node, prefix string, left func(*node) map[string]*node, got map[string][]byte) (matched int, err error) {
	names := left(dir)
	sorted := make([]string, 0, len(names))
	for name := range names {
		sorted = append(sorted, name)
	}
	slices.Sort(sorted)
	for _, name := range sorted {
		n, path := names[name], prefix+name
		if n.names != nil {
			path += "/"
		}
		data, ok := got[path]
		if !ok {
			return matched, fmt.Errorf("%s is missing", path)
		}
		if n.names == nil {
			if err := n.allows(data); err != nil {
				return matched, fmt.Errorf("%s: %w", path, err)
			}
			matched++
			continue
		}
		below, err := compare(n, path, left, got)
		if matched += below + 1; err != nil {
			return matched, err
		}
	}
	return matched, nil
}

// allows says why a crash could not leave data in the file.
func (n *node) allows(data []byte) error {
	low, high := n.sizes()
	if size := int64(len(data)); size < low || size > high {
		return fmt.Errorf("size %d, which was never less than %d or more than %d", size, low, high)
	}
	for i, b := range data {
		if i < len(n.synced) && b != n.synced[i] && !n.changed(int64(i)) {
			return fmt.Errorf("byte %d is %#x, it was synced as %#x and not written since", i, b, n.synced[i])
		}
		if i >= len(n.synced) && b != 0 && !n.changed(int64(i)) {
			return fmt.Errorf("byte %d is %#x, it was never written", i, b)
		}
	}
	return nil
}
