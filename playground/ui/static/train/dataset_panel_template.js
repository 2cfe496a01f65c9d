export default /* HTML */ `
  <div class="bring pg">
    <div class="ways" role="group" aria-label="Source of the data">
      <button type="button" data-way="text" aria-pressed="true">Paste</button
      ><button type="button" data-way="file" aria-pressed="false">File</button
      ><button type="button" data-way="hub" aria-pressed="false">Hub</button>
    </div>
    <div class="way of-text">
      <textarea
        class="text"
        rows="7"
        spellcheck="false"
        autocomplete="off"
        wrap="off"
        aria-label="Examples: source, tab, target"
        placeholder="c a t&#9;t a c&#10;d o g&#9;g o d&#10;…"
      ></textarea>
      <p class="hint">One example per line: source, tab, target. At least about 100 examples.</p>
    </div>
    <div class="way of-file" hidden>
      <button type="button" class="quiet choose">Choose a file</button
      ><input type="file" class="file" accept=".tsv,.txt,.csv,text/*" hidden />
      <p class="hint file-name">
        TSV (source, tab, target), or CSV with a line of names; at most 50 MB.
      </p>
    </div>
    <form class="way of-hub" hidden>
      <label
        >Dataset
        <input
          class="repo"
          type="text"
          spellcheck="false"
          autocomplete="off"
          maxlength="190"
          placeholder="user/dataset"
      /></label>
      <button type="submit" class="quiet">Read</button>
      <p class="hint">
        A public dataset; its first 100,000 rows, read as tables. The playground runs no code of it.
      </p>
    </form>
    <div class="columns" hidden>
      <label
        >Source column
        <input
          class="column-source"
          list="bring-columns"
          spellcheck="false"
          autocomplete="off"
          maxlength="200"
      /></label>
      <label
        >Target column
        <input
          class="column-target"
          list="bring-columns"
          spellcheck="false"
          autocomplete="off"
          maxlength="200"
      /></label>
      <datalist id="bring-columns"></datalist>
      <p class="hint">Required if the file has more than two columns.</p>
    </div>
    <label class="apart"
      >A token is
      <select class="words">
        <option value="">detected automatically</option>
        <option value="characters">a character</option>
        <option value="words">a word, separated by spaces</option>
      </select></label
    >
    <p class="state" role="status" aria-live="polite"></p>
    <div class="problem" role="alert" hidden>
      <p></p>
      <ul></ul>
    </div>
    <div class="report" hidden>
      <table class="preview">
        <caption class="hint">
          First examples, token by token
        </caption>
        <tbody></tbody>
      </table>
      <dl class="counts"></dl>
    </div>
    <button type="button" class="use" disabled>Use this dataset</button>
    <details class="shelf" hidden>
      <summary>Datasets on this server</summary>
      <ul></ul>
    </details>
  </div>
`;
