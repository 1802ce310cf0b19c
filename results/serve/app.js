// What pages do besides being read: lists are sorted and filtered, and what changes in the store
// is shown as it changes.
'use strict';
(function () {
  var find = function (id) { return document.getElementById(id); };
  var table = find('runs');
  var form = find('filters');
  var fields = ['text', 'experiment', 'driver', 'verdict'];

  // Sorting. A cell's data-k is what it sorts by, else its text.
  function key(row, i) {
    var cell = row.cells[i], k = cell.getAttribute('data-k');
    return k === null ? cell.textContent : k;
  }
  function compare(a, b) { return String(a).localeCompare(String(b), undefined, {numeric: true}); }
  function sort() {
    var heads = table.tHead.rows[0].cells, at = -1;
    for (var i = 0; i < heads.length; i++) if (heads[i].hasAttribute('aria-sort')) at = i;
    if (at < 0) return;
    var up = heads[at].getAttribute('aria-sort') === 'ascending', collator = new Intl.Collator(undefined, {numeric: true});
    var rows = Array.prototype.map.call(table.tBodies[0].rows, function (r) { return {row: r, key: key(r, at)}; });
    var before = rows.slice();
    rows.sort(function (a, b) { return (up ? 1 : -1) * collator.compare(a.key, b.key); });
    if (rows.every(function (r, i) { return r === before[i]; })) return;
    var body = document.createDocumentFragment();
    rows.forEach(function (r) { body.appendChild(r.row); });
    table.tBodies[0].appendChild(body);
  }
  function sortable() {
    Array.prototype.forEach.call(table.tHead.rows[0].cells, function (th) {
      var b = document.createElement('button');
      b.type = 'button';
      b.textContent = th.textContent;
      th.textContent = '';
      th.appendChild(b);
      b.addEventListener('click', function () {
        var up = th.getAttribute('aria-sort') !== 'ascending';
        Array.prototype.forEach.call(table.tHead.rows[0].cells, function (h) { h.removeAttribute('aria-sort'); });
        th.setAttribute('aria-sort', up ? 'ascending' : 'descending');
        sort();
      });
    });
  }

  // Filtering. What is asked for is in the address, so that it can be kept and shared.
  function grouped(n) { return String(n).replace(/\B(?=(\d{3})+$)/g, ','); }
  function filter() {
    var want = {}, asked = new URLSearchParams();
    fields.forEach(function (f) {
      want[f] = find('filter-' + f).value;
      if (want[f]) asked.set(f, want[f]);
    });
    var words = want.text.toLowerCase().split(/\s+/).filter(Boolean), shown = 0, runs = 0, copies = 0, rows = table.tBodies[0].rows;
    Array.prototype.forEach.call(rows, function (r) {
      var text = words.length ? r.textContent.toLowerCase() + ' ' + r.id.toLowerCase() : '';
      var ok = ['experiment', 'driver', 'verdict'].every(function (f) { return !want[f] || r.getAttribute('data-' + f) === want[f]; }) &&
        words.every(function (w) { return text.indexOf(w) >= 0; });
      r.hidden = !ok;
      if (r.hasAttribute('data-copy')) {
        copies++;
        return;
      }
      runs++;
      if (ok) shown++;
    });
    find('count').textContent = (shown === runs ? '' : grouped(shown) + ' of ') + grouped(runs) + (runs === 1 ? ' run' : ' runs') +
      (copies ? ', ' + grouped(copies) + (copies === 1 ? ' duplicate' : ' duplicates') : '');
    history.replaceState(null, '', asked.toString() ? '?' + asked : location.pathname);
  }
  function option(field, value) { // a value that no run had before
    var select = find('filter-' + field);
    if (!value || Array.prototype.some.call(select.options, function (o) { return o.value === value; })) return;
    var o = document.createElement('option');
    o.textContent = value;
    var after = Array.prototype.find.call(select.options, function (p) { return p.value && compare(p.value, value) > 0; });
    select.insertBefore(o, after || null);
  }
  function filterable() {
    var asked = new URLSearchParams(location.search);
    fields.forEach(function (f) {
      if (!asked.get(f)) return;
      if (f !== 'text') option(f, asked.get(f)); // what is asked for stays, also if no run has it
      find('filter-' + f).value = asked.get(f);
    });
    form.hidden = false;
    form.addEventListener('input', filter);
    form.addEventListener('reset', function () { setTimeout(filter, 0); });
    form.addEventListener('submit', function (e) { e.preventDefault(); });
    filter();
  }

  // Changes of the store.
  function patch(change) {
    change.rows.forEach(function (r) {
      var t = document.createElement('template');
      t.innerHTML = r.html; // escaped by the server
      var row = t.content.querySelector('tr'), old = find('r-' + r.dir);
      ['experiment', 'driver', 'verdict'].forEach(function (f) { option(f, row.getAttribute('data-' + f)); });
      if (!old) {
        row.className = 'new';
        table.tBodies[0].insertBefore(row, table.tBodies[0].firstChild);
        if (find('empty')) find('empty').remove();
        return;
      }
      var link = old.contains(document.activeElement) ? Array.prototype.indexOf.call(old.querySelectorAll('a'), document.activeElement) : -1;
      old.replaceWith(row);
      if (link >= 0 && row.querySelectorAll('a')[link]) row.querySelectorAll('a')[link].focus();
    });
    change.gone.forEach(function (dir) { if (find('r-' + dir)) find('r-' + dir).remove(); });
    sort();
    filter();
  }
  var busy = false, again = false;
  function renew() { // the page of a run: as it would be now
    if (busy) { again = true; return; }
    busy = true;
    fetch(location.href).then(function (a) { return a.ok ? a.text() : Promise.reject(a.status); }).then(function (text) {
      var now = new DOMParser().parseFromString(text, 'text/html').getElementById('main');
      var a = Array.from(find('main').children), b = Array.from(now.children);
      if (a.length !== b.length) find('main').replaceChildren.apply(find('main'), b);
      else a.forEach(function (e, i) { // what is read stays
        if (e.isEqualNode(b[i])) return;
        var was = e.querySelectorAll('details');
        b[i].querySelectorAll('details').forEach(function (d, k) { d.open = Boolean(was[k] && was[k].open); });
        e.replaceWith(b[i]);
      });
    }).catch(function () {}).then(function () { // the next event is another try
      busy = false;
      if (again) { again = false; renew(); }
    });
  }
  function listen() {
    var watch = document.body.dataset.watch, trouble = find('trouble');
    var source = new EventSource('/events?' + new URLSearchParams({since: document.body.dataset.version, run: watch}));
    source.addEventListener('open', function () { trouble.textContent = ''; document.body.dataset.live = 'yes'; });
    source.addEventListener('error', function () { trouble.textContent = 'The server does not answer; trying again.'; document.body.dataset.live = 'no'; });
    source.addEventListener('trouble', function (e) { trouble.textContent = JSON.parse(e.data); });
    source.addEventListener('reload', function () { source.close(); location.reload(); });
    source.addEventListener('runs', function (e) {
      var change = JSON.parse(e.data);
      if (table) patch(change);
      else if (change.gone.length) { trouble.textContent = 'This run was removed.'; source.close(); }
      else renew();
    });
    addEventListener('pagehide', function () { source.close(); });
    addEventListener('pageshow', function (e) { if (e.persisted) location.reload(); });
  }
  if (table) { sortable(); filterable(); }
  if (document.body.dataset.watch !== '-') listen();
})();
