"""Dump what Caffe computes, for `caffejax compare`. --like takes a dump's inputs, and its params unless --weights."""

import argparse
import json

import caffe
import numpy as np

parser = argparse.ArgumentParser(description=__doc__)
for flag in ("model", "out", "--weights", "--like", "--phase"):
    parser.add_argument(flag)
parser.add_argument("--backward", action="store_true")
args = parser.parse_args()
caffe.set_mode_cpu()  # on a GPU some layers leave other things in diffs that nothing needs
phase, like, random = args.phase or "TEST", dict(np.load(args.like) if args.like else {}), np.random.RandomState(0)
net = caffe.Net(*[args.model] + [args.weights] * bool(args.weights) + [getattr(caffe, phase)])
names, blobs, writers, out = list(net._layer_names), list(net._blob_names), {}, {"loss": 0.0}
keys = ["%s#%d" % (k, names[:i].count(k) + 1) if k in names[:i] else k for i, k in enumerate(names)]
bottoms, tops = ([[blobs[b] for b in f(i)] for i in range(len(keys))] for f in (net._bottom_ids, net._top_ids))
params = [("%s/%d" % (key, n), p) for key, x in zip(keys, net.layers) for n, p in enumerate(x.blobs)]
for k, p in params:
    p.data[...] = out["param/" + k] = np.array(p.data if args.weights else like.get("param/" + k, p.data))
for i, key in enumerate(keys):
    out.update(("top/%s/%s" % (writers[b], b), net.blobs[b].data.copy()) for b in tops[i] if b in writers)
    out["loss"] += net._forward(i, i)
    for b, x in [(b, net.blobs[b].data) for b in tops[i] if not bottoms[i]]:
        x = like.get("input/" + b, random.normal(size=x.shape) if b in net.inputs else x).astype("f")
        net.blobs[b].reshape(*x.shape)
        net.blobs[b].data[...] = out["input/" + b] = x
    writers.update((b, key) for b in tops[i])
out.update(("blob/" + b, net.blobs[b].data.copy()) for b in writers)
for i in range(len(keys) - 1, -1, -1) if args.backward else ():
    out.update(("top_diff/%s/%s" % (keys[i], b), net.blobs[b].diff.copy()) for b in tops[i] if b in bottoms[i])
    net._backward(i, i)
out.update(("diff/" + b, net.blobs[b].diff.copy()) for b in writers if args.backward)
out.update(("grad/" + k, p.diff.copy()) for k, p in params if args.backward)
layers = [{"name": k, "type": x.type, "bottoms": b, "tops": t} for k, x, b, t in zip(keys, net.layers, bottoms, tops)]
meta = {"format": "caffe dump 1", "maker": "pycaffe", "net": args.model, "phase": phase, "layers": layers}
np.savez(args.out, meta=json.dumps(meta), **out)
