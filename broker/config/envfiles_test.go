package config

import (
	"fmt"
	"io/fs"
	"testing"
)

func TestFromFiles(t *testing.T) {
	files := map[string]string{"/run/secrets/id": "abcdefghijklmnopqrstuv\n", "/run/secrets/secret": "a secret of enough bytes\r\n", "/empty": ""}
	read := func(name string) ([]byte, error) {
		text, ok := files[name]
		if !ok {
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		return []byte(text), nil
	}
	for _, tt := range []struct {
		env        []string
		id, secret string
		err        string
	}{
		{env: []string{"KAFKA_KRAFT_CLUSTER_ID_FILE=/run/secrets/id", "KAJA_CLUSTER_SECRET_FILE=/run/secrets/secret"}, id: "abcdefghijklmnopqrstuv", secret: "a secret of enough bytes"},
		{env: []string{"KAFKA_KRAFT_CLUSTER_ID=other", "KAFKA_KRAFT_CLUSTER_ID_FILE=/run/secrets/id"}, id: "abcdefghijklmnopqrstuv"},
		{env: []string{"KAFKA_KRAFT_CLUSTER_ID_FILE=/run/secrets/id", "KAFKA_KRAFT_CLUSTER_ID=other"}, id: "abcdefghijklmnopqrstuv"},
		{env: []string{"KAFKA_KRAFT_CLUSTER_ID=abcdefghijklmnopqrstuw", "KAFKA_KRAFT_CLUSTER_ID_FILE="}, id: "abcdefghijklmnopqrstuw"},
		{env: []string{"KAFKA_HEAP_OPTS_FILE=/none", "KAFKA_OPTS_FILE=/none"}},
		{env: []string{"KAJA_CLUSTER_SECRET_FILE=/none"}, err: "environment variable KAJA_CLUSTER_SECRET_FILE: open /none: file does not exist"},
	} {
		t.Run(fmt.Sprint(tt.env), func(t *testing.T) {
			env, err := FromFiles(tt.env, read)
			if tt.err != "" {
				if err == nil || err.Error() != tt.err {
					t.Fatalf("error %v, want %s", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			c, reports := load(t, Sources{Env: env})
			if c.String("kaja.cluster.id") != tt.id || c.String("kaja.cluster.secret") != tt.secret {
				t.Errorf("cluster %q, secret %q", c.String("kaja.cluster.id"), c.String("kaja.cluster.secret"))
			}
			for _, r := range reports {
				t.Errorf("no effect: %s from %s", r.Name, r.Origin.Where)
			}
		})
	}
}
