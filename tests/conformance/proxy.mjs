// A loopback proxy that adds a key to every request and changes nothing else, because the conformance
// suite cannot be told to send a header. It prints its own address when it is ready.
//
//   RAGLAN_KEY=… node proxy.mjs http://127.0.0.1:8420

import http from 'node:http';

const { hostname, port } = new URL(process.argv[2]);
const authorization = `Bearer ${process.env.RAGLAN_KEY}`;

const proxy = http.createServer((request, response) => {
  const { method, url: path } = request;
  const headers = { ...request.headers, authorization };
  const forwarded = http.request({ hostname, port, path, method, headers }, (answer) => {
    response.writeHead(answer.statusCode, answer.rawHeaders);
    answer.pipe(response);
  });
  forwarded.on('error', () => response.writeHead(502).end());
  request.pipe(forwarded);
});

proxy.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${proxy.address().port}`));
